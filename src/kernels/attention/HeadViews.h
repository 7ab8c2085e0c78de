#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/MultiheadAttention.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {

/// A view (B, rows, heads, head size) as attention's kernels take it; borrowed.
template <class Value>
HeadMatrix<Value> matrix_of(const at::Tensor& view) {
  return {values_of(view), view.stride(0), static_cast<int>(view.stride(1)),
          static_cast<int>(view.stride(2))};
}

}  // namespace adtrain::kernels

#include "kernels/gemm/Columns.h"

#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/gemm/ColumnKernels.h"

namespace adtrain::kernels {

void add_columns(const at::Tensor& matrix_of_any_strides, const at::Tensor& sums,
                 const at::Tensor& parts_ahead) {
  const c10::cuda::CUDAGuard on_device(sums.device());
  if (parts_ahead.defined()) return add_up(parts_ahead, sums);
  const at::Tensor matrix = matrix_of_any_strides.contiguous();
  const MatrixShape shape = shape_of(matrix);
  const at::Tensor parts = parts_for(column_parts(shape, processors()), sums);
  join_columns({shape,
                {vectors_of(matrix)},
                1,
                /*joined=*/nullptr,
                parts.data_ptr<float>(),
                static_cast<int>(parts.size(0))},
               current_stream());
  add_up(parts, sums);
}

at::Tensor joined_columns(at::TensorList matrices, const at::Tensor& sums) {
  const c10::cuda::CUDAGuard on_device(sums.device());
  JoinColumns call = {};
  std::vector<at::Tensor> dense;
  for (const at::Tensor& matrix : matrices) {
    dense.push_back(matrix.contiguous());
    call.matrices[call.matrix_count++] = vectors_of(dense.back());
  }
  call.shape = shape_of(dense.front());
  call.shape.width *= call.matrix_count;
  const at::Tensor joined = at::empty({call.shape.rows, call.shape.width}, dense.front().options());
  const at::Tensor parts = parts_for(column_parts(call.shape, processors()), sums);
  call.joined = vectors_of(joined);
  call.parts = parts.data_ptr<float>();
  call.part_count = static_cast<int>(parts.size(0));
  join_columns(call, current_stream());
  add_up(parts, sums);
  return joined;
}

}  // namespace adtrain::kernels

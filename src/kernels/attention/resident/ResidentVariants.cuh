#pragma once

#include <driver_types.h>

#include "kernels/attention/MultiheadAttention.h"

/// Picks the variant of a resident attention kernel by head size, dropout, streams and padding.
namespace adtrain::kernels {

/// Calls Kernel::launch<HeadSize, Dropout, Streams, Padded>(job, stream). `Chosen`: the flags chosen so far.
template <class Kernel, int HeadSize, bool... Chosen, class Job>
void launch_chosen(const MultiheadAttention& attention, const Job& job, cudaStream_t stream) {
  constexpr int kFlags = 3;
  if constexpr (sizeof...(Chosen) == kFlags) {
    Kernel::template launch<HeadSize, Chosen...>(job, stream);
  } else {
    const bool flags[kFlags] = {attention.keep != nullptr, attention.shape.queries > 0,
                                attention.shape.first != nullptr};
    if (flags[sizeof...(Chosen)]) {
      launch_chosen<Kernel, HeadSize, Chosen..., true>(attention, job, stream);
    } else {
      launch_chosen<Kernel, HeadSize, Chosen..., false>(attention, job, stream);
    }
  }
}

/// `job`: the argument of the kernel for this attention.
template <class Kernel, class Job>
void launch_variant(const MultiheadAttention& attention, const Job& job, cudaStream_t stream) {
  switch (attention.shape.width / attention.shape.heads) {
    case 8:
      return launch_chosen<Kernel, 8>(attention, job, stream);
    case 16:
      return launch_chosen<Kernel, 16>(attention, job, stream);
    default:
      return launch_chosen<Kernel, 32>(attention, job, stream);
  }
}

}  // namespace adtrain::kernels

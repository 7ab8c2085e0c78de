#pragma once

#include <cstddef>

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>

namespace adtrain::kernels {

/// What the visitors of CUTLASS's epilogues that CUTLASS does not have share. A visitor is a node of the tree
/// that an epilogue computes: cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp says what a node
/// must have and when its functions are called. These need no workspace, and nothing that the warp which
/// loads brings; their parameters on the GPU are their arguments.
struct EpilogueVisitor {
  template <class Shape, class Arguments>
  static constexpr Arguments to_underlying_arguments(const Shape&, const Arguments& arguments, void*) {
    return arguments;
  }
  template <class Shape, class Arguments>
  static bool can_implement(const Shape&, const Arguments&) {
    return true;
  }
  template <class Shape, class Arguments>
  static size_t get_workspace_size(const Shape&, const Arguments&) {
    return 0;
  }
  template <class Shape, class Arguments>
  static cutlass::Status initialize_workspace(const Shape&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }
  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }
  template <class Producer>
  CUTLASS_DEVICE auto get_producer_load_callbacks(const Producer&) {
    return cutlass::epilogue::fusion::EmptyProducerLoadCallbacks{};
  }
};

}  // namespace adtrain::kernels

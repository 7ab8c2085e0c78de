#include <algorithm>

#include "base/Cuda.h"
#include "model/kernels/fused/AttentionBackward.h"
#include "model/kernels/fused/attention_backward/Launch.cuh"

namespace adtrain::kernels {

int attention_backward_parts(const BlockShape& shape) {
  int device = 0, processors = 0;
  gpu::check(cudaGetDevice(&device), "cudaGetDevice");
  gpu::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  return std::min(shape.sequences, 64 / shape.width * processors);
}

int64_t attention_backward_carried(const BlockShape& shape) {
  return shape.queries == 0
             ? 0
             : int64_t{attention_backward_parts(shape)} * backward_pass::carried_elements(shape.width);
}

void attention_backward(const BlockShape& shape, const BlockWeights& weights, const KeepBits& keep,
                        const BlockActivations& activations, const Bf16* dx1, Bf16* dx, float* parts,
                        Bf16* carried, cudaStream_t stream) {
  backward_pass::launch_for_shape<backward_pass::PostNorm>(
      {shape, weights, keep, activations, dx1, dx, parts, carried}, stream);
}

}  // namespace adtrain::kernels

#include "kernels/block/attention_backward/Launch.cuh"
#include "kernels/block/pre_norm/PreNormAttention.h"

namespace adtrain::kernels {
namespace {

using namespace backward_pass;

RopeJob job_of(const BlockShape& shape, const PreNormAttention& attention, const Bf16* dx1, Bf16* dnormed,
               float* parts, Bf16* carried, const UnaddedParts& ahead) {
  RopeJob job = {};
  job.shape = shape;
  job.weights.in_proj_weight = attention.in_proj_weight;
  job.weights.in_proj_bias = attention.in_proj_bias;
  job.weights.out_proj_weight = attention.out_proj_weight;
  job.keep.attention = attention.keep;
  job.keep.attention_scale = attention.scale;
  job.activations.x = attention.normed;
  job.activations.attention_output = attention.attention_output;
  job.activations.lse = attention.lse;
  job.dx1 = dx1;
  job.dx = dnormed;
  job.parts = parts;
  job.carried = carried;
  job.ahead = ahead;
  job.cosines = attention.cosines;
  job.sines = attention.sines;
  return job;
}

}  // namespace

int pre_norm_attention_backward_parts(const BlockShape& shape) {
  return blocks_for(shape);
}

void pre_norm_attention_backward(const BlockShape& shape, const PreNormAttention& attention,
                                 const __nv_bfloat16* dx1, __nv_bfloat16* dnormed, float* parts,
                                 __nv_bfloat16* carried, const UnaddedParts& ahead, cudaStream_t stream) {
  launch_for_shape<PreNorm>(job_of(shape, attention, dx1, dnormed, parts, carried, ahead), stream);
}

}  // namespace adtrain::kernels

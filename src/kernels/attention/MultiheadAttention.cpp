#include "kernels/attention/MultiheadAttention.h"

#include "kernels/attention/resident/ResidentAttention.h"
#include "kernels/attention/streaming/StreamingAttention.h"

namespace adtrain::kernels {

void multihead_attention(const MultiheadAttention& attention, cudaStream_t stream) {
  if (attention.is_streaming()) return streaming_attention(attention, stream);
  resident_attention(attention, stream);
}

void multihead_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream) {
  if (attention.is_streaming()) return streaming_attention_backward(attention, gradients, stream);
  resident_attention_backward(attention, gradients, stream);
}

}  // namespace adtrain::kernels

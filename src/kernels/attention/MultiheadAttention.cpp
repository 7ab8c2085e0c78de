#include "kernels/attention/MultiheadAttention.h"

#include "kernels/attention/resident/ResidentAttention.h"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/TwoStreams.h"

namespace adtrain::kernels {

void multihead_attention(const MultiheadAttention& attention, cudaStream_t stream) {
  if (!attention.is_streaming()) return resident_attention(attention, stream);
  if (attention.shape.queries > 0) return two_stream_attention(attention, stream);
  streaming_attention(attention, stream);
}

void multihead_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream) {
  if (!attention.is_streaming()) return resident_attention_backward(attention, gradients, stream);
  if (attention.shape.queries > 0) return two_stream_attention_backward(attention, gradients, stream);
  streaming_attention_backward(attention, gradients, stream);
}

}  // namespace adtrain::kernels

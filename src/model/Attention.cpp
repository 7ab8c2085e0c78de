#include "model/Attention.h"

#include "kernels/attention/LibraryAttention.h"
#include "kernels/cpu/CpuAttention.h"

namespace adtrain {

at::Tensor attend(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams, const Rotary& rotary,
                  double dropout_rate) {
  if (kernels::cpu_attention_fits(qkv, streams)) {
    return kernels::attend_on_cpu(qkv, rows, streams, rotary, dropout_rate);
  }
  return kernels::library_attention(qkv, rows, streams, rotary, dropout_rate);
}

}  // namespace adtrain

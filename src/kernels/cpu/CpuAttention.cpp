#include "kernels/cpu/CpuAttention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu/AttentionHead.h"
#include "kernels/cpu/Vec.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Calls work(head, sequence, head number) for every head, with one workspace per thread.
template <class Work>
void for_each_head(const HeadPlan& plan, const at::Tensor& qkv, Work work) {
  const int64_t heads = qkv.size(2);
  at::parallel_for(0, qkv.size(1) * heads, 1, [&](int64_t begin, int64_t end) {
    AttentionHead workspace(plan);
    for (int64_t i = begin; i < end; ++i) {
      workspace.gather(qkv, i / heads, i % heads);
      work(workspace, i / heads, i % heads);
    }
  });
}

class CpuAttention : public autograd::Function<CpuAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& qkv, int64_t rows,
                            const TokenStreams& streams, const Rotary& rotary, double dropout_rate) {
    const int64_t heads = qkv.size(2);
    const CpuDropout dropout = CpuDropout::drawn(dropout_rate, qkv.size(1), qkv.size(1) * heads * rows);
    const int64_t width = heads * qkv.size(4);
    const at::Tensor out = at::empty({qkv.size(1), rows, width}, qkv.options());
    const at::Tensor lse = at::empty({qkv.size(1), heads, rows}, qkv.options());
    auto* outs = out.data_ptr<float>();
    auto* logs = lse.data_ptr<float>();
    for_each_head(HeadPlan(qkv, rows, streams, rotary, dropout), qkv,
                  [&](AttentionHead& work, int64_t sequence, int64_t head) {
                    work.forward(outs + sequence * rows * width + head * qkv.size(4), width,
                                 logs + (sequence * heads + head) * rows);
                  });
    context->save_for_backward({qkv, out, lse, rotary.cosines, rotary.sines});
    context->saved_data["context"] = streams.context;
    context->saved_data["queries"] = streams.queries;
    dropout.save(context->saved_data);
    return out;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const at::Tensor d_out = gradients[0].contiguous();
    const int64_t heads = qkv.size(2);
    const int64_t rows = d_out.size(1);
    const int64_t width = d_out.size(2);
    const TokenStreams streams{
        context->saved_data["context"].toInt(), context->saved_data["queries"].toInt(), {}};
    at::Tensor d_qkv = at::empty_like(qkv);
    const auto* d_outs = d_out.const_data_ptr<float>();
    const auto* outs = saved[1].const_data_ptr<float>();
    const auto* logs = saved[2].const_data_ptr<float>();
    const CpuDropout dropout = CpuDropout::saved(context->saved_data);
    const HeadPlan plan(qkv, rows, streams, {saved[3], saved[4]}, dropout);
    for_each_head(plan, qkv, [&](AttentionHead& work, int64_t sequence, int64_t head) {
      const int64_t first = sequence * rows * width + head * qkv.size(4);
      work.backward(outs + first, d_outs + first, width, logs + (sequence * heads + head) * rows, d_qkv);
    });
    return {d_qkv, {}, {}, {}, {}};
  }
};

}  // namespace

bool cpu_attention_fits(const at::Tensor& qkv, const TokenStreams& streams) {
  return qkv.is_cpu() && qkv.scalar_type() == at::kFloat && qkv.size(4) % kLanes == 0 && qkv.stride(4) == 1 &&
         !streams.padded() && !streams.packed();
}

at::Tensor attend_on_cpu(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams,
                         const Rotary& rotary, double dropout_rate) {
  return CpuAttention::apply(qkv, rows, streams, rotary, dropout_rate);
}

}  // namespace adtrain::kernels

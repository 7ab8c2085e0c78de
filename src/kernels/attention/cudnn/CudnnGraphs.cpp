#include "kernels/attention/cudnn/CudnnGraphs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain::kernels {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Attributes = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Attributes>;

void check(fe::error_t status, const CudnnAttentionCase& attention) {
  if (status.is_good()) return;
  throw EnvironmentError(fmt::format(
      "cuDNN {} has no {} pass of causal attention for {} sequences of {} tokens and {} heads of {}: {}. Set "
      "fused_kernels: off to train by libtorch's operators, and please report this line.",
      fe::detail::get_backend_version_string(), attention.backward ? "backward" : "forward",
      attention.sizes[0], attention.sizes[2], attention.sizes[1], attention.sizes[3], status.get_message()));
}

/// Builds one graph: names its tensors and gives them sizes and strides.
class Builder {
 public:
  explicit Builder(const CudnnAttentionCase& attention)
      : case_(attention), graph_(std::make_shared<Graph>()) {
    graph_->set_io_data_type(attention.type == at::kHalf ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<Graph> forward() {
    auto options = with_choices(fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true));
    auto [output, statistics] =
        graph_->sdpa(in(CudnnTensor::kQueries), in(CudnnTensor::kKeys), in(CudnnTensor::kValues), options);
    returned(output, CudnnTensor::kOutput, case_.out);
    as_statistics(statistics->set_output(true));
    return graph_;
  }

  std::shared_ptr<Graph> backward() {
    auto options = with_choices(fe::graph::SDPA_backward_attributes()
                                    .set_name("attention_backward")
                                    .set_deterministic_algorithm(case_.deterministic));
    Attributes statistics;
    as_statistics(statistics);
    auto [queries, keys, values] = graph_->sdpa_backward(
        in(CudnnTensor::kQueries), in(CudnnTensor::kKeys), in(CudnnTensor::kValues),
        out(CudnnTensor::kOutput), out(CudnnTensor::kOutputGradient), graph_->tensor(statistics), options);
    returned(queries, CudnnTensor::kQueryGradients, case_.in);
    returned(keys, CudnnTensor::kKeyGradients, case_.in);
    returned(values, CudnnTensor::kValueGradients, case_.in);
    return graph_;
  }

 private:
  using Numbers = std::vector<int64_t>;

  static Attributes named(CudnnTensor tensor) { return Attributes().set_uid(static_cast<int64_t>(tensor)); }
  Numbers sizes() const { return {case_.sizes.begin(), case_.sizes.end()}; }
  /// One number for each row of scores: (B, heads, tokens, 1), contiguous.
  void as_statistics(Attributes& tensor) const {
    const auto [sequences, heads, tokens, size] = case_.sizes;
    tensor.set_uid(static_cast<int64_t>(CudnnTensor::kStatistics))
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({sequences, heads, tokens, 1})
        .set_stride({heads * tokens, tokens, 1, 1});
  }

  Tensor given(CudnnTensor tensor, const CudnnAttentionCase::Strides& strides) {
    return graph_->tensor(named(tensor).set_dim(sizes()).set_stride({strides.begin(), strides.end()}));
  }
  Tensor in(CudnnTensor tensor) { return given(tensor, case_.in); }
  Tensor out(CudnnTensor tensor) { return given(tensor, case_.out); }
  void returned(const Tensor& result, CudnnTensor tensor, const CudnnAttentionCase::Strides& strides) const {
    result->set_output(true)
        .set_uid(static_cast<int64_t>(tensor))
        .set_dim(sizes())
        .set_stride({strides.begin(), strides.end()});
  }
  Tensor number(CudnnTensor tensor) {
    return graph_->tensor(
        named(tensor).set_data_type(fe::DataType_t::INT64).set_dim({1, 1, 1, 1}).set_stride({1, 1, 1, 1}));
  }

  template <class Options>
  Options with_choices(Options options) {
    options.set_causal_mask(true)
        .set_alibi_mask(case_.alibi)
        .set_attn_scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(case_.sizes[3]))));
    if (case_.dropout_rate > 0) {
      options.set_dropout(static_cast<float>(case_.dropout_rate), number(CudnnTensor::kSeed),
                          number(CudnnTensor::kOffset));
    }
    return options;
  }

  const CudnnAttentionCase& case_;
  std::shared_ptr<Graph> graph_;
};

/// Graphs of this process with their compiled kernels.
class Compiled {
 public:
  std::shared_ptr<Graph> graph(const CudnnAttentionCase& attention, cudnnHandle_t handle) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Graph>& found = graphs_[attention];
    if (!found) {
      Builder builder(attention);
      std::shared_ptr<Graph> made = attention.backward ? builder.backward() : builder.forward();
      check(made->build(handle, {fe::HeurMode_t::A}), attention);
      found = std::move(made);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<CudnnAttentionCase, std::shared_ptr<Graph>> graphs_;
};

Compiled& compiled() {
  static Compiled graphs;
  return graphs;
}

}  // namespace

void execute(const CudnnAttentionCase& attention, CudnnMemory& memory) {
  const cudnnHandle_t handle = at::native::getCudnnHandle();  // of this thread, on the current stream
  const std::shared_ptr<Graph> graph = compiled().graph(attention, handle);
  int64_t bytes = 0;
  check(graph->get_workspace_size(bytes), attention);
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(attention.device));
  const at::Tensor workspace =
      at::empty({std::max<int64_t>(bytes, 1)}, at::TensorOptions().dtype(at::kByte).device(device));
  check(graph->execute(handle, memory, workspace.data_ptr()), attention);
}

}  // namespace adtrain::kernels

#include "run/throughput/PeerProgram.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/SharedFile.h"

namespace adtrain {
namespace {

/// Numbers of a token and of the head: of tasks of several groups, those of the first.
std::pair<int64_t, int64_t> features_and_actions(const ModelShape& shape) {
  if (shape.spaces.empty()) return {shape.transition_features(), shape.num_actions};
  const TaskSpaces& spaces = shape.spaces.front();
  const std::vector<int64_t>& values = spaces.action.values;
  const int64_t actions =
      values.empty() ? spaces.action.size() : std::accumulate(values.begin(), values.end(), int64_t{0});
  return {spaces.observation.size() + spaces.action.size() + 1, actions};
}

std::string network_json(const ModelOptions& model, const ModelShape& shape) {
  const auto [features, actions] = features_and_actions(shape);
  const nlohmann::ordered_json json = {{"width", model.tf_n_embd},
                                       {"layers", model.tf_n_layer},
                                       {"heads", model.tf_n_head},
                                       {"inner", model.inner_width()},
                                       {"tokens", model.longest_context()},
                                       {"features", features},
                                       {"actions", actions}};
  return json.dump();
}

}  // namespace

PeerProgram::PeerProgram(std::string python, const RunConfig& config)
    : python_(std::move(python)), network_(network_json(config.model, config.model_shape())) {}

std::vector<std::string> PeerProgram::command(const ThroughputRow& row, double seconds,
                                              const std::filesystem::path& speed) const {
  std::vector<std::string> words = {
      python_,     shared_file("peer_scoring.py", "that PyTorch's rows run").string(),
      "--network", network_,
      "--seconds", fmt::format("{}", seconds),
      "--output",  speed.string()};
  words.insert(words.end(), row.peer.begin(), row.peer.end());
  return words;
}

}  // namespace adtrain

#include "run/checkpoints/ImportedNetwork.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

/// What tells one block from the others.
struct Family {
  const char* block;         ///< the value of transformer_block; null where no shape shows it
  std::string_view prefix;   ///< of a layer's parameters, up to its number
  std::string_view witness;  ///< behind the number
  const char* states;        ///< the embedding of states: a row for each cell
};
constexpr Family kFamilies[] = {
    {"pre_norm", "transformer.blocks.", ".attn.attn.weight", "embed_query_state.weight"},
    {"post_norm", "transformer_encoder.layers.", ".self_attn.in_proj_weight", "embed_query_state.weight"},
    {"gpt2", "transformer.h.", ".attn.c_attn.weight", "embed_state.weight"},
    {nullptr, "blocks.", ".attention.qkv.weight", "embed_query_state.weight"}};

class Shapes {
 public:
  Shapes(const std::vector<NamedTensor>& model, const std::filesystem::path& file)
      : model_(model), file_(file) {}

  [[noreturn]] void fail(const std::string& fault) const {
    throw CheckpointError(fmt::format("{}: {}", file_.string(), fault));
  }

  bool has(const std::string& name) const {
    return std::ranges::find(model_, name, &NamedTensor::name) != model_.end();
  }
  int64_t extent(const std::string& name, int64_t dimension, int64_t dimensions) const {
    const auto found = std::ranges::find(model_, name, &NamedTensor::name);
    if (found == model_.end()) fail(fmt::format("its model lacks '{}'", name));
    if (found->tensor.dim() != dimensions)
      fail(fmt::format("its '{}' has {} dimensions; expected {}", name, found->tensor.dim(), dimensions));
    return found->tensor.size(dimension);
  }
  /// Whether there is an encoder of observations, which may be that of one of several groups of spaces.
  bool are_of_any_space() const {
    return std::ranges::any_of(model_, [](const NamedTensor& named) {
      return named.name.starts_with("observation.") || named.name.find(".observation.") != std::string::npos;
    });
  }
  std::string first_names() const {
    std::vector<std::string> names;
    for (const NamedTensor& named : model_) {
      if (names.size() < 8) names.push_back(named.name);
    }
    return abridged(join(names, ", "), 400);
  }

 private:
  const std::vector<NamedTensor>& model_;
  const std::filesystem::path& file_;
};

/// Of the embedding of states, or where there is none of that of their coordinates, which has two rows a
/// value.
int64_t grid_size_in(const Shapes& shapes, const char* states) {
  constexpr const char* kCoordinates = "embed_coordinate.weight";
  if (shapes.has(kCoordinates)) return shapes.extent(kCoordinates, 0, 2) / 2;
  const int64_t rows = shapes.extent(states, 0, 2);
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(rows))));
  if (side * side == rows) return side;
  shapes.fail(fmt::format(
      "its embedding of states has {} rows; expected a square, one for each cell of a grid", rows));
}

}  // namespace

json settings_of_network(const std::vector<NamedTensor>& model, const std::filesystem::path& file) {
  const Shapes shapes(model, file);
  if (shapes.are_of_any_space()) {
    shapes.fail(
        "found a network over tasks of any space, whose spaces no shape shows; expected one of a grid "
        "family: use the run that it was exported from");
  }
  for (const Family& family : kFamilies) {
    const auto layer = [&](int64_t number, std::string_view rest) {
      return fmt::format("{}{}{}", family.prefix, number, rest);
    };
    int64_t layers = 0;
    while (shapes.has(layer(layers, family.witness))) ++layers;
    if (layers == 0) continue;
    json settings = {{"tf_n_layer", layers},
                     {"tf_n_embd", shapes.extent("pred_action.weight", 1, 2)},
                     {"num_actions", shapes.extent("pred_action.weight", 0, 2)},
                     {"grid_size", grid_size_in(shapes, family.states)}};
    if (shapes.has("pred_dynamics.hidden.weight")) settings["dynamics"] = true;
    if (family.block == nullptr) {
      settings["tf_n_inner"] = shapes.extent(layer(0, ".mlp.up.weight"), 0, 2);
      return settings;
    }
    settings["transformer_block"] = family.block;
    const std::string_view block = family.block;
    if (block == "pre_norm") settings["tf_n_inner"] = shapes.extent(layer(0, ".mlp.swiglu.w1.weight"), 0, 2);
    if (block == "post_norm") settings["n_transit"] = shapes.extent("pos_embedding", 1, 3);
    if (block == "gpt2") {
      settings["model"] = "GPT2";
      settings["n_transit"] = (shapes.extent("transformer.wpe.weight", 0, 2) - 1) / 3 + 1;
    }
    return settings;
  }
  shapes.fail(fmt::format(
      "its model is none of the networks here; found {}, …; expected transformer.blocks.0.attn.attn.weight "
      "(DICP), transformer_encoder.layers.0.self_attn.in_proj_weight, transformer.h.0.attn.c_attn.weight or "
      "blocks.0.attention.qkv.weight (an export of chosen pieces)",
      shapes.first_names()));
}

}  // namespace adtrain

// Writes what model_reference.py and any_space_reference.py compare with their own arithmetic: for each
// variant the parameters and, for loss at the last and at all positions, a random batch with its logits, loss
// and gradients.
//
//   model_dump FOLDER [RUN...] -> FOLDER/model.json (names, types, shapes, offsets) and FOLDER/model.bin (the
//   values, raw)
//
// For each RUN, a run's folder, a random batch with the logits of its newest checkpoint at all positions.

#include <span>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "checkpoint/CheckpointStore.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"
#include "run/RunConfig.h"

namespace adtrain {
namespace {

using nlohmann::json;

class Dump {
 public:
  void put(json& section, const std::string& name, const at::Tensor& tensor) {
    const bool real = tensor.is_floating_point();
    const at::Tensor values = tensor.detach().to(real ? at::kFloat : at::kInt).contiguous();
    section[name] = {
        {"type", real ? "float32" : "int32"}, {"shape", values.sizes().vec()}, {"offset", bytes_.size()}};
    bytes_.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// With loss at all positions, compressed rows must hold full current regions.
Batch batch_of(const ModelOptions& options, LossPositions positions, const ModelShape& shape = {}) {
  if (!options.compressed()) return testing::random_plain(3, options.n_transit, shape);
  const auto full = static_cast<int32_t>(options.compress_interval);
  if (positions == LossPositions::kAll)
    return testing::random_compressed({0, full, 2}, {full, full, full}, full, shape);
  return testing::random_compressed({0, full, 2, full, 0}, {1, 3, 0, full, 0}, full, shape);
}

json describe(Dump& dump, const Batch& batch) {
  json fields;
  dump.put(fields, "states", batch.states);
  dump.put(fields, "actions", batch.actions);
  dump.put(fields, "rewards", batch.rewards);
  if (batch.of_any_space()) {
    dump.put(fields, "before_action", batch.before_action);
    dump.put(fields, "before_reward", batch.before_reward);
    dump.put(fields, "begins", batch.begins);
    if (batch.state_mean.defined()) {
      dump.put(fields, "state_mean", batch.state_mean);
      dump.put(fields, "state_deviation", batch.state_deviation);
    }
    return fields;
  }
  dump.put(fields, "next_states", batch.next_states);
  if (batch.compressed()) {
    dump.put(fields, "previous", batch.previous);
    dump.put(fields, "current", batch.current);
    dump.put(fields, "query_state", batch.query_state);
    dump.put(fields, "query_action", batch.query_action);
  }
  return fields;
}

/// Rows of one group of spaces, and what is predicted for them.
json describe_rows(Dump& dump, AlgorithmDistillation& model, const Batch& batch, LossPositions positions) {
  json result;
  result["group"] = batch.group;
  result["batch"] = describe(dump, batch);
  const auto logits = model.forward(batch, positions, true);
  dump.put(result, "actions", logits.actions);
  if (logits.token_types.defined()) dump.put(result, "token_types", logits.token_types);
  return result;
}

json describe(Dump& dump, AlgorithmDistillation& model, const Batch& batch, LossPositions positions) {
  json result;
  if (batch.parts.empty()) {
    result = describe_rows(dump, model, batch, positions);
  } else {
    for (const Batch& part : batch.parts)
      result["parts"].push_back(describe_rows(dump, model, part, positions));
  }
  const auto loss = model.loss(batch, positions, true);
  dump.put(result, "loss", loss.sum);
  std::vector<at::Tensor> gradients;
  for (const auto& [name, view] : model.parameters().views_of(testing::flat_gradient(model, loss.sum))) {
    gradients.push_back(view.flatten());
  }
  dump.put(result, "gradient", at::cat(gradients));
  result["targets"] = loss.targets;
  return result;
}

/// Every setting of the model as a saved configuration has it.
json settings_of(ModelOptions options) {
  options.decide();
  Section section("Model");
  options.declare(section);
  json settings;
  for (const Key& key : section.keys()) settings[key.name()] = key.value_text();
  return settings;
}

/// `batch_for`: a random batch for loss at these positions.
template <class BatchFor>
json describe(Dump& dump, AlgorithmDistillation& model, BatchFor batch_for) {
  const ModelOptions& options = model.options();
  json section = {{"settings", settings_of(options)},
                  {"width", options.tf_n_embd},
                  {"layers", options.tf_n_layer},
                  {"heads", options.tf_n_head},
                  {"n_transit", options.n_transit},
                  {"label_smoothing", options.label_smoothing},
                  {"token_type_weight", options.token_type_weight},
                  {"order", json::array()}};
  // Biases and norms start at 0 and 1, where a mistake would not show.
  at::Tensor flat = model.parameters().flat();
  flat.add_(at::randn_like(flat), 0.1);
  for (const auto& [name, tensor] : model.parameters().named()) {
    dump.put(section["parameters"], name, tensor);
    section["order"].push_back(name);
  }
  section["last"] = describe(dump, model, batch_for(LossPositions::kLast), LossPositions::kLast);
  section["all"] = describe(dump, model, batch_for(LossPositions::kAll), LossPositions::kAll);
  return section;
}

json describe(Dump& dump, const testing::Variant& variant) {
  return describe(dump, *testing::small_model(variant),
                  [&](LossPositions positions) { return batch_of(variant.options, positions); });
}

json describe(const TaskSpaces& spaces) {
  return {{"observation", json::parse(spaces.observation.to_json())},
          {"action", json::parse(spaces.action.to_json())},
          {"packed_digits", spaces.packed_digits},
          {"group", spaces.group}};
}

json describe(Dump& dump, const testing::SpaceVariant& variant) {
  json section = describe(dump, *testing::small_model(variant), [&](LossPositions) {
    return testing::random_rows(variant, 2, variant.options.n_transit);
  });
  section["spaces"].push_back(describe(variant.spaces));
  return section;
}

/// Batches have rows of all groups, of the first one more.
json describe(Dump& dump, const testing::GroupedVariant& variant) {
  ModelOptions options = variant.groups.front().options;
  options.tf_dropout = options.tf_attn_dropout = 0;
  const auto model = AlgorithmDistillation::create(options, variant.shape(), /*seed=*/7);
  json section = describe(dump, *model, [&](LossPositions) {
    Batch batch;
    for (size_t group = 0; group < variant.groups.size(); ++group) {
      batch.parts.push_back(
          testing::random_rows(variant.groups[group], group == 0 ? 2 : 1, options.n_transit));
      batch.parts.back().group = static_cast<int64_t>(group);
    }
    return batch;
  });
  for (const TaskSpaces& spaces : variant.shape().spaces) section["spaces"].push_back(describe(spaces));
  return section;
}

json describe(Dump& dump, const RunFolder& run) {
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(run.config(), {}, notices);
  const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), /*seed=*/0);
  const at::NoGradGuard no_grad;
  model->parameters().load(CheckpointStore(run.checkpoints(), 2).newest().snapshot.model);
  const Batch batch = batch_of(config.model, LossPositions::kAll, config.model_shape());
  json section;
  section["batch"] = describe(dump, batch);
  dump.put(section, "actions", model->forward(batch, LossPositions::kAll, false).actions);
  return section;
}

}  // namespace
}  // namespace adtrain

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::filesystem::path folder = argv[1];
  adtrain::Dump dump;
  nlohmann::json index;
  std::vector<std::string> names = {"pre_norm", "post_norm", "gpt2", "compressed"};
  for (const std::string& name : adtrain::testing::composed_names()) names.push_back(name);
  for (const std::string& name : names) {
    auto variant = adtrain::testing::variant(name);
    variant.options.tf_dropout = variant.options.tf_attn_dropout = 0;
    index[name] = adtrain::describe(dump, variant);
  }
  for (auto& variant : adtrain::testing::space_variants()) {
    variant.options.tf_dropout = variant.options.tf_attn_dropout = 0;
    index[variant.name] = adtrain::describe(dump, variant);
  }
  for (const auto& variant : adtrain::testing::grouped_variants())
    index[variant.name] = adtrain::describe(dump, variant);
  for (const char* run : std::span(argv, argc).subspan(2)) {
    index[run] = adtrain::describe(dump, adtrain::RunFolder{run});
  }
  adtrain::write_file(folder / "model.json", index.dump());
  adtrain::write_file(folder / "model.bin", dump.bytes());
}

#include "run/GuideMaps.h"

#include <functional>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

/// What guides call keys of the same meaning and unit, within their maps.
const std::map<std::string, std::string>& names_in_maps() {
  static const std::map<std::string, std::string> kNames = {{"batch_size", "train_batch_size"},
                                                            {"eval_batch_size", "test_batch_size"},
                                                            {"max_batch_size", "batch_size_limit"},
                                                            {"learning_rate", "lr"},
                                                            {"warmup_steps", "num_warmup_steps"},
                                                            {"max_steps", "train_timesteps"},
                                                            {"name", "run_name"},
                                                            {"output_dir", "runs_dir"},
                                                            {"logging_steps", "summary_interval"},
                                                            {"eval_steps", "eval_interval"},
                                                            {"save_steps", "ckpt_interval"},
                                                            {"save_total_limit", "keep_checkpoints"},
                                                            {"dataloader_num_workers", "num_workers"}};
  return kNames;
}

bool is_one_of(const std::string& text, const std::set<std::string>& words) {
  return words.contains(to_lower(text));
}

/// Whether a value of Transformers asks for nothing.
bool asks_for_nothing(const Entry& entry) {
  return entry.kind == Entry::Kind::kNull ||
         (entry.kind == Entry::Kind::kScalar && is_one_of(entry.text, {"false", "no", "off", "none"}));
}

/// A key of Transformers' model loading.
class LoadingKey {
 public:
  LoadingKey(Document& document, std::vector<std::string>& remarks, const std::string& key)
      : document_(document), remarks_(remarks), key_(key) {
    if (const Entry* const found = document.find(key)) entry_ = *found;
  }

  bool there() const { return entry_.has_value(); }
  const Entry& entry() const { return *entry_; }

  void drop() { document_.drop(key_); }
  void drop(const std::string& remark) {
    remarks_.push_back(fmt::format("{}: {}: {}: {}", entry_->origin.text(), key_, entry_->text, remark));
    drop();
  }
  /// It means the same as another key with this value.
  void becomes(const std::string& key, const std::string& value) { document_.rename(key_, key, value); }
  /// It sets another key to this value, too.
  void chooses(const std::string& key, const std::string& value) { document_.put_beside(key_, key, value); }
  /// It is a key here, too, with this value; a nested map as text that is read later.
  void stays(const std::string& value) { document_.replace(key_, value); }
  void refuse(const std::string& what_to_do) {
    document_.refuse(key_, fmt::format("found {}; {}", entry_->found(), what_to_do));
  }

 private:
  Document& document_;
  std::vector<std::string>& remarks_;
  std::string key_;
  std::optional<Entry> entry_;
};

/// A device stands for `device`; a mode or a map becomes the text that PlacementOptions reads.
void read_device_map(LoadingKey device_map) {
  if (!device_map.there()) return;
  const Entry& entry = device_map.entry();
  if (asks_for_nothing(entry)) return device_map.drop();
  if (entry.kind == Entry::Kind::kList)
    return device_map.refuse(
        "expected auto, balanced, balanced_low_0, sequential, or a map of modules to devices");
  if (entry.kind == Entry::Kind::kMap) return device_map.stays(entry.text);
  if (entry.text == "cpu") return device_map.becomes("device", "cpu");
  if (is_one_of(entry.text, {"cuda", "cuda:0", "0"})) return device_map.becomes("device", "cuda");
}

void read_max_memory(LoadingKey max_memory) {
  if (!max_memory.there()) return;
  if (asks_for_nothing(max_memory.entry())) return max_memory.drop();
  if (max_memory.entry().kind != Entry::Kind::kScalar) max_memory.stays(max_memory.entry().text);
}

void read_torch_dtype(LoadingKey dtype) {
  if (!dtype.there()) return;
  static const std::map<std::string, std::string> kTypes = {
      {"bfloat16", "bf16"}, {"bf16", "bf16"},    {"float16", "fp16"}, {"fp16", "fp16"},
      {"half", "fp16"},     {"float32", "fp32"}, {"fp32", "fp32"},    {"float", "fp32"}};
  if (asks_for_nothing(dtype.entry()) || dtype.entry().text == "auto") return dtype.drop();
  std::string name = dtype.entry().text;
  if (name.starts_with("torch.")) name = name.substr(std::string("torch.").size());
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) {
    return dtype.refuse(
        "expected float32, float16 or bfloat16, for training the same as mixed_precision: no, fp16 or bf16");
  }
  dtype.chooses("mixed_precision", found->second == "fp32" ? "no" : found->second);
  dtype.stays(found->second);
}

void read_not_there(LoadingKey key, const std::string& what_to_do) {
  if (!key.there()) return;
  if (asks_for_nothing(key.entry())) return key.drop();
  key.refuse(what_to_do);
}

}  // namespace

std::vector<std::string> read_guide_maps(Document& document, const std::set<std::string>& keys) {
  static const std::vector<std::string> kLoadingKeys = {
      "device_map", "torch_dtype", "max_memory", "load_in_8bit", "load_in_4bit", "quantization_config"};
  std::map<std::string, std::string> names;
  for (const std::string& key : keys) names[key] = key;
  for (const std::string& key : kLoadingKeys) names[key] = key;
  for (const auto& [name, key] : names_in_maps()) names[name] = key;
  for (const char* map : {"experiment", "training", "model_loading"}) document.unfold(map, names);

  std::vector<std::string> remarks;
  const auto loading = [&](const char* key) { return LoadingKey(document, remarks, key); };
  read_device_map(loading("device_map"));
  read_torch_dtype(loading("torch_dtype"));
  const std::string no_quantization =
      "weights of 8 or 4 bits are not there yet: mixed_precision: bf16 is what takes less memory; leave it "
      "out, or "
      "say false";
  for (const char* key : {"load_in_8bit", "load_in_4bit", "quantization_config"}) {
    read_not_there(loading(key), no_quantization);
  }
  read_max_memory(loading("max_memory"));
  return remarks;
}

}  // namespace adtrain

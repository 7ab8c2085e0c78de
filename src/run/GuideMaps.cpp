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

/// "bf16" of "torch.bfloat16"; nothing where it is no type that networks compute in.
std::optional<std::string> type_called(std::string name) {
  static const std::map<std::string, std::string> kTypes = {
      {"bfloat16", "bf16"}, {"bf16", "bf16"},    {"float16", "fp16"}, {"fp16", "fp16"},
      {"half", "fp16"},     {"float32", "fp32"}, {"fp32", "fp32"},    {"float", "fp32"}};
  if (name.starts_with("torch.")) name = name.substr(std::string("torch.").size());
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

void read_torch_dtype(LoadingKey dtype) {
  if (!dtype.there()) return;
  if (asks_for_nothing(dtype.entry()) || dtype.entry().text == "auto") return dtype.drop();
  const std::optional<std::string> type = type_called(dtype.entry().text);
  if (!type) {
    return dtype.refuse(
        "expected float32, float16 or bfloat16, for training the same as mixed_precision: no, fp16 or bf16");
  }
  dtype.chooses("mixed_precision", *type == "fp32" ? "no" : *type);
  dtype.stays(*type);
}

void read_compute_dtype(LoadingKey dtype) {
  if (!dtype.there()) return;
  if (asks_for_nothing(dtype.entry())) return dtype.drop();
  if (const auto type = type_called(dtype.entry().text)) return dtype.stays(*type);
  dtype.refuse("expected float32, float16 or bfloat16");
}

/// A key of BitsAndBytesConfig that has one meaning here, that of `value` or of nothing.
void read_fixed(LoadingKey key, const std::string& value, const std::string& what_to_do) {
  if (!key.there()) return;
  if (asks_for_nothing(key.entry()) || to_lower(key.entry().text) == value) return key.drop();
  key.refuse(what_to_do);
}

/// Its map's pairs are keys here, but for those that say how bitsandbytes itself works.
void read_quantization_config(Document& document, std::vector<std::string>& remarks) {
  constexpr const char* kMap = "quantization_config";
  const auto loading = [&](const char* key) { return LoadingKey(document, remarks, key); };
  // BitsAndBytesConfig.to_dict() writes these two beside the ones without a bar.
  std::map<std::string, std::string> names = {{"_load_in_8bit", "load_in_8bit"},
                                              {"_load_in_4bit", "load_in_4bit"}};
  for (const char* key :
       {"load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_compute_dtype",
        "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage", "llm_int8_threshold", "llm_int8_skip_modules",
        "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "quant_method"}) {
    names[key] = key;
  }
  document.unfold(kMap, names);
  if (LoadingKey map = loading(kMap); map.there()) {
    if (asks_for_nothing(map.entry())) {
      map.drop();
    } else {
      map.refuse("expected a map such as {load_in_4bit: true, bnb_4bit_quant_type: nf4}");
    }
  }
  read_compute_dtype(loading("bnb_4bit_compute_dtype"));
  for (const char* key : {"llm_int8_threshold", "llm_int8_skip_modules"}) {
    if (LoadingKey of_int8 = loading(key); of_int8.there() && asks_for_nothing(of_int8.entry()))
      of_int8.drop();
  }
  read_fixed(loading("quant_method"), "bitsandbytes", "expected bitsandbytes, whose formats these are");
  read_fixed(loading("bnb_4bit_quant_storage"), "uint8",
             "weights of 4 bits are stored in bytes: expected uint8, or leave it out");
  read_fixed(
      loading("llm_int8_enable_fp32_cpu_offload"), "",
      "what a device_map leaves to the cpu is quantised, too, and comes to a GPU for each use: expected "
      "false, or leave it out");
  read_fixed(loading("llm_int8_has_fp16_weight"), "",
             "it keeps weights in 16 bits to train them: expected false, or leave it out");
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
  read_quantization_config(document, remarks);
  read_max_memory(loading("max_memory"));
  return remarks;
}

}  // namespace adtrain

#include "model/QuantisationOptions.h"

#include <fmt/format.h>

namespace adtrain {

void QuantisationOptions::declare(Section& section) {
  section.key(
      "load_in_8bit", load_in_8bit,
      "adtrain score and adtrain evaluate keep the weights of linear layers, but those of heads, in 8 "
      "bits, by row as LLM.int8 does. Training does not.");
  section.key("load_in_4bit", load_in_4bit, "The same in 4 bits, in blocks of 64 as bitsandbytes does.");
  section.key("bnb_4bit_quant_type", quant_type, {{"nf4", QuantisedCode::nf4}, {"fp4", QuantisedCode::fp4}},
              "Codes of 4 bits: those of normally distributed weights, or a floating-point number of 4 bits. "
              "This, too, may be in a map quantization_config, as may be the other keys here.");
  section
      .key("bnb_4bit_compute_dtype", compute_dtype,
           "Of 4 bits: the type in which linear layers multiply; float32, float16 and bfloat16 are "
           "understood, too. null: that of torch_dtype.")
      .one_of({"fp32", "fp16", "bf16"});
  section.key("bnb_4bit_use_double_quant", use_double_quant,
              "Of 4 bits: the largest magnitude of each block is kept in 8 bits, too, for 4.13 bits a weight "
              "instead of 4.5.");
  section
      .key("llm_int8_threshold", threshold,
           "Of 8 bits: above 0, linear layers multiply as LLM.int8 does, with activations in 8 bits but for "
           "columns that have this magnitude (6.0 in the paper). null or 0: activations stay as they are, "
           "which is more exact.")
      .at_least(0);
  section.key(
      "llm_int8_skip_modules", skip_modules,
      "Linear layers that stay as they are, in 8 bits and in 4: names of modules or patterns, such as "
      "[embed_token, 'blocks.0', '*.down']. null for none.");
  section.all_free_on_resume();
}

void QuantisationOptions::check(Findings& findings) const {
  if (load_in_8bit && load_in_4bit)
    findings.add("load_in_8bit", "found true beside load_in_4bit: true; expected one of them");
}

std::vector<std::string> QuantisationOptions::notices() const {
  std::vector<std::string> notices;
  const auto add = [&](bool given, const char* key, const char* of) {
    if (given) notices.push_back(fmt::format("{} has no effect: it is for {}", key, of));
  };
  if (!load_in_4bit) {
    const QuantisationOptions usual;
    add(quant_type != usual.quant_type, "bnb_4bit_quant_type", "load_in_4bit: true");
    add(compute_dtype.has_value(), "bnb_4bit_compute_dtype", "load_in_4bit: true");
    add(use_double_quant, "bnb_4bit_use_double_quant", "load_in_4bit: true");
  }
  if (!load_in_8bit) add(threshold.has_value(), "llm_int8_threshold", "load_in_8bit: true");
  if (!is_on())
    add(skip_modules.has_value(), "llm_int8_skip_modules", "load_in_8bit: true or load_in_4bit: true");
  return notices;
}

std::optional<WeightQuantisation> QuantisationOptions::weights() const {
  if (load_in_8bit) {
    return WeightQuantisation{.code = QuantisedCode::int8, .outlier_threshold = threshold.value_or(0)};
  }
  if (!load_in_4bit) return std::nullopt;
  return WeightQuantisation{
      .code = quant_type, .double_quantisation = use_double_quant, .compute_type = compute_type()};
}

std::vector<std::pair<std::string, std::string>> QuantisationOptions::identity() const {
  std::vector<std::pair<std::string, std::string>> identity;
  if (!is_on()) return identity;
  identity.emplace_back("quantisation", weights()->name());
  if (compute_type()) identity.emplace_back("bnb_4bit_compute_dtype", *compute_dtype);
  if (skip_modules) identity.emplace_back("llm_int8_skip_modules", *skip_modules);
  return identity;
}

std::optional<at::ScalarType> QuantisationOptions::compute_type() const {
  if (!load_in_4bit || !compute_dtype) return std::nullopt;
  if (*compute_dtype == "fp32") return at::kFloat;
  return *compute_dtype == "fp16" ? at::kHalf : at::kBFloat16;
}

}  // namespace adtrain

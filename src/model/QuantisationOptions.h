#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "config/Section.h"
#include "model/QuantisedLinear.h"

namespace adtrain {

/// In which form `adtrain score` and `adtrain evaluate` load the weights of linear layers: the keys of
/// Transformers and of its BitsAndBytesConfig.
struct QuantisationOptions {
  bool load_in_8bit = false;
  bool load_in_4bit = false;
  QuantisedCode quant_type = QuantisedCode::nf4;  ///< of 4 bits
  std::optional<std::string> compute_dtype;       ///< fp32, fp16 or bf16
  bool use_double_quant = false;
  std::optional<double> threshold;          ///< of LLM.int8's outliers
  std::optional<std::string> skip_modules;  ///< patterns with commas between them

  void declare(Section& section);
  void check(Findings& findings) const;
  /// A sentence for each setting that is given but has no effect with the others.
  std::vector<std::string> notices() const;

  bool is_on() const { return load_in_8bit || load_in_4bit; }
  /// The key that asks for it.
  const char* key() const { return load_in_8bit ? "load_in_8bit" : "load_in_4bit"; }
  /// Nothing where weights are as they are.
  std::optional<WeightQuantisation> weights() const;
  /// What results of quantised weights are told apart by, as keys with texts; none where they are as they
  /// are.
  std::vector<std::pair<std::string, std::string>> identity() const;
  /// bnb_4bit_compute_dtype, where it is given and of effect.
  std::optional<at::ScalarType> compute_type() const;
};

}  // namespace adtrain

#include "model/QuantisedNetwork.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Words.h"
#include "model/ParameterNames.h"
#include "model/ParameterPatterns.h"

namespace adtrain {

std::set<std::string> quantised_names(const ParameterBuffer& parameters, const std::string& skipped,
                                      const std::string& place) {
  std::vector<std::string> linear;
  for (const std::string& name : parameters.linear_weights()) {
    if (!comes_after_blocks(name)) linear.push_back(name);
  }
  if (linear.empty()) {
    throw ConfigError(
        "load_in_8bit, load_in_4bit: found one of them for a plug-in's network, whose layers are its own; "
        "expected neither");
  }
  std::set<std::string> names(linear.begin(), linear.end());
  if (trimmed(skipped).empty()) return names;
  std::vector<std::string> all;
  for (const auto& [name, leaf] : parameters.named_leaves()) all.push_back(name);
  for (const std::string& name : names_that_fit(skipped, all, place)) names.erase(name);
  if (names.empty()) {
    throw ConfigError(fmt::format("{}: found '{}', which leaves no linear layer to quantise; expected fewer",
                                  place, skipped));
  }
  return names;
}

WeightQuantisation stored_form(const QuantisedMatrices& matrices, const ParameterBuffer& parameters,
                               const std::filesystem::path& file) {
  const std::vector<std::string> linear = parameters.linear_weights();
  const auto form_of = [](const QuantisedMatrix& matrix) {
    return WeightQuantisation{.code = matrix.code, .double_quantisation = matrix.nested()};
  };
  const auto& [first, first_matrix] = *matrices.begin();
  const WeightQuantisation form = form_of(first_matrix);
  for (const auto& [name, matrix] : matrices) {
    if (std::ranges::find(linear, name) == linear.end()) {
      throw CheckpointError(
          fmt::format("{}: {} is quantised, and is no linear layer of this network", file.string(), name));
    }
    if (const WeightQuantisation own = form_of(matrix); own.name() != form.name()) {
      throw CheckpointError(fmt::format("{}: {} is quantised as {}, and {} as {}; expected one form for all",
                                        file.string(), first, form.name(), name, own.name()));
    }
  }
  return form;
}

QuantisedSize QuantisedSize::of(const ParameterBuffer& parameters, const std::set<std::string>& names,
                                const WeightQuantisation& how, at::ScalarType type) {
  QuantisedSize size;
  for (const auto& [name, leaf] : parameters.named_leaves()) {
    const int64_t plain = leaf.numel() * static_cast<int64_t>(c10::elementSize(type));
    const int64_t bytes = names.contains(name) ? how.bytes(leaf.size(0), leaf.size(1)) : plain;
    if (names.contains(name) && bytes >= plain) size.without_gain.push_back(name);
    size.parameters.push_back(bytes);
    size.total += bytes;
    size.unquantised += plain;
  }
  return size;
}

}  // namespace adtrain

#include <algorithm>

#include <fmt/format.h>

#include "base/Text.h"
#include "run/figures/RunComparison.h"

namespace adtrain {
namespace {

using nlohmann::ordered_json;

std::string figure_text(const std::optional<double>& figure) {
  return figure ? fmt::format("{:.6g}", *figure) : "-";
}

std::string table_of(const std::vector<RunComparison::Result>& results) {
  size_t widest = 0;
  for (const auto& result : results) widest = std::max(widest, result.name.size());
  std::string text = fmt::format("\nresults{:{}}{:>12}{:>12}\n", "", widest - 5, "A", "B");
  for (const auto& result : results) {
    text += fmt::format("  {:<{}}{:>12}{:>12}\n", result.name, widest, figure_text(result.first),
                        figure_text(result.second));
  }
  return text;
}

/// `noun`: what a tensor is called.
std::string text_of(const TensorDifference& difference, const std::string& of, const std::string& noun) {
  std::string text = fmt::format("  {}: ", of);
  const std::string all = counted(difference.tensors, noun, noun + "s");
  if (difference.none()) return text + fmt::format("all {} are equal\n", all);
  text += fmt::format("{} of {} differ\n", difference.different, all);
  if (difference.first) text += fmt::format("    first:   {}\n", difference.first->text());
  if (difference.largest) text += fmt::format("    largest: {}\n", difference.largest->text());
  constexpr size_t kMostShown = 10;
  for (size_t i = 0; i < std::min(kMostShown, difference.unlike.size()); ++i)
    text += fmt::format("    {}\n", difference.unlike[i]);
  if (difference.unlike.size() > kMostShown)
    text += fmt::format("    and {} more such {}s\n", difference.unlike.size() - kMostShown, noun);
  return text;
}

ordered_json json_of(const std::optional<CurveDifference::Point>& point) {
  if (!point) return nullptr;
  return {{"at", point->x}, {"a", point->first}, {"b", point->second}, {"by", point->by()}};
}

ordered_json json_of(const std::optional<ElementDifference>& element) {
  if (!element) return nullptr;
  return {{"tensor", element->tensor},
          {"index", element->index},
          {"a", element->first},
          {"b", element->second},
          {"by", element->by}};
}

ordered_json json_of(const TensorDifference& difference) {
  return {{"tensors", difference.tensors},
          {"different", difference.different},
          {"first", json_of(difference.first)},
          {"largest", json_of(difference.largest)},
          {"unlike", difference.unlike}};
}

}  // namespace

std::string CurveDifference::text() const {
  const std::string all = counted(common, "common " + unit, "common " + unit + "s");
  if (!first) return fmt::format("{}: equal at {}", name, all);
  const auto point = [&](const Point& at) {
    return fmt::format("{} {}: {} and {}, by {:.3g}", unit, at.x, at.first, at.second, at.by());
  };
  return fmt::format("{}: {} of {} differ\n    first:   {}\n    largest: {}", name, different, all,
                     point(*first), point(*largest));
}

std::string RunComparison::text() const {
  std::string text = fmt::format("A: {}\nB: {}\n\n", first, second);
  if (config.empty()) {
    text += "configuration: equal\n";
  } else {
    text +=
        fmt::format("configuration, A → B: {}\n", counted(std::ssize(config), "difference", "differences"));
    for (const ConfigChange& change : config) text += fmt::format("  {}\n", change.text());
  }
  if (!results.empty()) text += table_of(results);
  text += "\nequality, bit for bit\n";
  for (const CurveDifference& curve : curves) text += fmt::format("  {}\n", curve.text());
  if (returns.tensors > 0 || !returns.none())
    text += text_of(returns, "returns by task and episode", "array");
  if (checkpoint_step) {
    text +=
        text_of(checkpoint, fmt::format("checkpoint of step {}, the newest that both have", *checkpoint_step),
                "tensor");
  }
  for (const std::string& sentence : unmatched) text += fmt::format("  {}\n", sentence);
  const bool nothing = curves.empty() && !checkpoint_step;
  return text + fmt::format("\nA and B {}\n", nothing   ? "have nothing in common to compare"
                                              : equal() ? "are equal"
                                                        : "are not equal");
}

ordered_json RunComparison::json() const {
  ordered_json object = {{"a", first}, {"b", second}, {"equal", equal()}};
  object["configuration"] = ordered_json::array();
  for (const ConfigChange& change : config)
    object["configuration"].push_back({{"key", change.key}, {"a", change.before}, {"b", change.now}});
  const auto number = [](const std::optional<double>& figure) {
    return figure ? ordered_json(*figure) : ordered_json(nullptr);
  };
  for (const Result& result : results)
    object["results"][result.name] = {{"a", number(result.first)}, {"b", number(result.second)}};
  object["curves"] = ordered_json::array();
  for (const CurveDifference& curve : curves) {
    object["curves"].push_back({{"name", curve.name},
                                {"common", curve.common},
                                {"different", curve.different},
                                {"first", json_of(curve.first)},
                                {"largest", json_of(curve.largest)}});
  }
  object["returns"] = json_of(returns);
  object["checkpoint"] = nullptr;
  if (checkpoint_step) {
    object["checkpoint"] = {{"step", *checkpoint_step}};
    object["checkpoint"].update(json_of(checkpoint));
  }
  object["unmatched"] = unmatched;
  return object;
}

}  // namespace adtrain

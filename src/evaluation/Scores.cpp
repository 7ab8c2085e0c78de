#include "evaluation/Scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

double score_of(const std::string& text, const char* name, const std::string& origin) {
  const std::optional<double> score = Scalar<double>::parse(text);
  if (score && std::isfinite(*score)) return *score;
  throw DataError(
      fmt::format("{}: attribute {} is '{}'; expected a finite number, the mean return of an episode", origin,
                  name, abridged(text)));
}

}  // namespace

std::optional<ReferenceScores> ReferenceScores::from_attributes(
    const std::map<std::string, std::string>& attributes, const std::string& origin) {
  constexpr const char *kRandom = "random-score", *kExpert = "expert-score";
  const auto random = attributes.find(kRandom), expert = attributes.find(kExpert);
  if (random == attributes.end() || expert == attributes.end()) return std::nullopt;
  const ReferenceScores scores{score_of(random->second, kRandom, origin),
                               score_of(expert->second, kExpert, origin)};
  if (scores.random != scores.expert) return scores;
  throw DataError(
      fmt::format("{}: attributes {} and {} are both {}; expected different ones, by which scores "
                  "are normalised",
                  origin, kRandom, kExpert, scores.random));
}

double interquartile_mean(std::span<const double> scores) {
  if (scores.empty()) throw std::invalid_argument("the interquartile mean of no scores");
  constexpr size_t kQuarters = 4;
  std::vector<double> sorted(scores.begin(), scores.end());
  std::ranges::sort(sorted);
  const size_t cut = sorted.size() / kQuarters;
  const auto kept = std::span(sorted).subspan(cut, sorted.size() - 2 * cut);
  return std::accumulate(kept.begin(), kept.end(), 0.0) / static_cast<double>(kept.size());
}

}  // namespace adtrain

#include "run/figures/RunComparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/NpyFile.h"

namespace adtrain {
namespace {

/// The figures that depend on a run's arithmetic alone.
constexpr const char* kComparedFigures[] = {"loss", "test_loss", "test_return", "train_return"};

std::map<std::string, Curve> metrics_of(const RecordedRun& run) {
  return std::filesystem::exists(run.folder.metrics()) ? run.metrics() : std::map<std::string, Curve>{};
}

std::optional<double> last_of(const std::map<std::string, Curve>& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::nullopt : std::optional(found->second.y.back());
}

std::optional<double> median_of(const std::map<std::string, Curve>& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  if (found == metrics.end()) return std::nullopt;
  std::vector<double> values = found->second.y;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

void compare_metrics(const RecordedRun& a, const RecordedRun& b, RunComparison& comparison) {
  const std::map<std::string, Curve> first = metrics_of(a), second = metrics_of(b);
  const auto last_step = [](const std::map<std::string, Curve>& metrics) -> std::optional<double> {
    const auto loss = metrics.find("loss");
    return loss == metrics.end() ? std::nullopt : std::optional(static_cast<double>(loss->second.x.back()));
  };
  comparison.results.push_back({"last step", last_step(first), last_step(second)});
  for (const char* figure : kComparedFigures) {
    comparison.results.push_back({figure, last_of(first, figure), last_of(second, figure)});
    const auto one = first.find(figure), other = second.find(figure);
    if (one == first.end() && other == second.end()) continue;
    if (one == first.end() || other == second.end()) {
      comparison.unmatched.push_back(
          fmt::format("only {} has {}", other == second.end() ? "A" : "B", figure));
      continue;
    }
    if (one->second.x != other->second.x) {
      comparison.unmatched.push_back(fmt::format("{} is of {} steps up to {} in A, and of {} up to {} in B",
                                                 figure, one->second.x.size(), one->second.x.back(),
                                                 other->second.x.size(), other->second.x.back()));
    }
    comparison.curves.push_back(CurveDifference::between(figure, "step", one->second, other->second));
  }
  comparison.results.push_back(
      {"steps/s, median", median_of(first, "steps_per_second"), median_of(second, "steps_per_second")});
}

Curve by_episode(const std::vector<double>& returns) {
  Curve curve;
  curve.y = returns;
  for (size_t i = 1; i <= returns.size(); ++i) curve.x.push_back(static_cast<int64_t>(i));
  return curve;
}

std::vector<EvaluationSummary> evaluations_of(const RecordedRun& run) {
  std::vector<EvaluationSummary> summaries;
  for (const std::string& name : run.evaluations()) summaries.push_back(run.evaluation(name));
  return summaries;
}

/// Removes the first one of which `same` holds from the list and returns it; nothing where there is none.
template <class Same>
std::optional<EvaluationSummary> take(std::vector<EvaluationSummary>& summaries, const Same& same) {
  const auto found = std::ranges::find_if(summaries, same);
  if (found == summaries.end()) return std::nullopt;
  EvaluationSummary summary = *found;
  summaries.erase(found);
  return summary;
}

/// What an evaluation's folder holds of returns by task, in full.
std::vector<NamedTensor> returns_of(const EvaluationSummary& evaluation) {
  std::vector<NamedTensor> returns;
  for (const char* const name : {kReturnsFile, kReturnsOfRepeatsFile}) {
    const std::filesystem::path file = evaluation.folder / name;
    if (!std::filesystem::exists(file)) continue;
    try {
      returns.push_back({name, tensor_of_npy(read_file(file), file.string())});
    } catch (const std::filesystem::filesystem_error& error) {
      throw DataError(fmt::format("{}; expected what adtrain evaluate writes there", error.what()));
    }
  }
  return returns;
}

/// The mean hides what tasks and repeats differ in. Each repeat's returns are compared where both have them:
/// their file may have been left out of a copy, and what it is the mean of is in the other one.
void compare_returns(const EvaluationSummary& a, const EvaluationSummary& b, TensorDifference& difference) {
  std::vector<NamedTensor> first = returns_of(a), second = returns_of(b);
  const auto drop_alone = [](std::vector<NamedTensor>& from, const std::vector<NamedTensor>& others) {
    std::erase_if(from, [&](const NamedTensor& each) {
      return each.name == kReturnsOfRepeatsFile &&
             std::ranges::find(others, each.name, &NamedTensor::name) == others.end();
    });
  };
  drop_alone(first, second);
  drop_alone(second, first);
  difference.compare(a.name, first, second);
}

/// Evaluations of the same are compared, whatever their folders are called.
void compare_evaluations(const RecordedRun& a, const RecordedRun& b, RunComparison& comparison) {
  std::vector<EvaluationSummary> others = evaluations_of(b), unmatched;
  const auto result = [&](const std::string& name, const EvaluationSummary* one,
                          const EvaluationSummary* other) {
    const auto last_ten = [](const EvaluationSummary* summary) {
      return summary != nullptr ? std::optional(summary->last10_mean) : std::nullopt;
    };
    comparison.results.push_back({name + ", last ten episodes", last_ten(one), last_ten(other)});
  };
  for (EvaluationSummary& one : evaluations_of(a)) {
    const auto other = take(others, [&](const auto& summary) { return summary.identity == one.identity; });
    if (!other) {
      unmatched.push_back(std::move(one));
      continue;
    }
    result(one.name, &one, &*other);
    comparison.curves.push_back(CurveDifference::between("returns in " + one.name, "episode",
                                                         by_episode(one.mean), by_episode(other->mean)));
    compare_returns(one, *other, comparison.returns);
  }
  for (const EvaluationSummary& one : unmatched) {
    const auto other = take(others, [&](const auto& summary) { return summary.name == one.name; });
    result(one.name, &one, other ? &*other : nullptr);
    comparison.unmatched.push_back(
        other ? fmt::format("{} is not of the same in A and B: its summary.json says of what", one.name)
              : fmt::format("only A has the evaluation {}", one.name));
  }
  for (const EvaluationSummary& other : others) {
    result(other.name, nullptr, &other);
    comparison.unmatched.push_back(fmt::format("only B has the evaluation {}", other.name));
  }
}

void compare_checkpoints(const RecordedRun& a, const RecordedRun& b, RunComparison& comparison) {
  const CheckpointStore first(a.folder.checkpoints(), /*keep=*/2), second(b.folder.checkpoints(), /*keep=*/2);
  const std::vector<int64_t> one = first.steps_as_named(), other = second.steps_as_named();
  std::vector<int64_t> common;
  std::ranges::set_intersection(one, other, std::back_inserter(common));
  if (common.empty()) {
    if (!one.empty() || !other.empty())
      comparison.unmatched.emplace_back("they have no checkpoint of one step");
    return;
  }
  if (one.back() != other.back()) {
    comparison.unmatched.push_back(fmt::format(
        "the newest checkpoint is of step {} in A, and of step {} in B", one.back(), other.back()));
  }
  comparison.checkpoint_step = common.back();
  comparison.checkpoint = CheckpointDifference::between(CheckpointStore::load(first.path_of(common.back())),
                                                        CheckpointStore::load(second.path_of(common.back())));
}

}  // namespace

double CurveDifference::Point::by() const {
  return std::abs(first - second);
}

CurveDifference CurveDifference::between(const std::string& name, const std::string& unit, const Curve& first,
                                         const Curve& second) {
  CurveDifference difference;
  difference.name = name;
  difference.unit = unit;
  for (size_t i = 0, k = 0; i < first.x.size() && k < second.x.size();) {
    if (first.x[i] != second.x[k]) {
      first.x[i] < second.x[k] ? ++i : ++k;
      continue;
    }
    const Point point{first.x[i], first.y[i++], second.y[k++]};
    ++difference.common;
    if (point.first == point.second || (std::isnan(point.first) && std::isnan(point.second))) continue;
    ++difference.different;
    if (!difference.first) difference.first = point;
    if (!difference.largest || point.by() > difference.largest->by()) difference.largest = point;
  }
  return difference;
}

RunComparison RunComparison::between(const RecordedRun& first, const RecordedRun& second) {
  RunComparison comparison;
  comparison.first = first.name;
  comparison.second = second.name;
  comparison.config = differences(first.config, second.config);
  compare_metrics(first, second, comparison);
  compare_evaluations(first, second, comparison);
  compare_checkpoints(first, second, comparison);
  std::erase_if(comparison.results, [](const Result& result) { return !result.first && !result.second; });
  return comparison;
}

bool RunComparison::equal() const {
  const bool compared = checkpoint_step || !curves.empty();
  return compared && unmatched.empty() && checkpoint.none() && returns.none() &&
         std::ranges::all_of(curves, [](const CurveDifference& curve) { return curve.different == 0; });
}

}  // namespace adtrain

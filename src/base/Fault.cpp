#include "base/Fault.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr const char* kVariable = "ADTRAIN_FAULT";

constexpr std::array kKinds = {
    std::pair{"kill", FaultKind::kKill},
    std::pair{"stop", FaultKind::kStop},
    std::pair{"exit0", FaultKind::kExit0},
    std::pair{"exit1", FaultKind::kExit1},
    std::pair{"abort", FaultKind::kAbort},
    std::pair{"segfault", FaultKind::kSegfault},
    std::pair{"throw", FaultKind::kThrow},
    std::pair{"out_of_memory", FaultKind::kOutOfMemory},
    std::pair{"hang", FaultKind::kHang},
    std::pair{"slow", FaultKind::kSlow},
    std::pair{"nan_loss", FaultKind::kNanLoss},
    std::pair{"nan_gradient", FaultKind::kNanGradient},
    std::pair{"no_space", FaultKind::kNoSpace},
    std::pair{"read_only", FaultKind::kReadOnly},
    std::pair{"clock_jump", FaultKind::kClockJump},
};
constexpr std::array kMoments = {
    std::pair{"kill_in_save:folder", SaveMoment::kFolder},
    std::pair{"kill_in_save:tensors", SaveMoment::kTensors},
    std::pair{"kill_in_save:manifest", SaveMoment::kManifest},
    std::pair{"kill_in_save:renamed", SaveMoment::kRenamed},
    std::pair{"kill_in_save:latest", SaveMoment::kLatest},
    std::pair{"kill_in_save:pruning", SaveMoment::kPruning},
};
constexpr std::array kStepMoments = {
    std::pair{"out_of_memory:forward", StepMoment::kForward},
    std::pair{"out_of_memory:backward", StepMoment::kBackward},
    std::pair{"out_of_memory:gradients", StepMoment::kGradients},
    std::pair{"out_of_memory:optimizer", StepMoment::kOptimizer},
    std::pair{"out_of_memory:capture", StepMoment::kCapture},
    std::pair{"out_of_memory:returns", StepMoment::kReturns},
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, kind] : kKinds) all.emplace_back(name);
  for (const auto& [name, moment] : kMoments) all.emplace_back(name);
  for (const auto& [name, moment] : kStepMoments) all.emplace_back(name);
  return all;
}

template <class Table>
auto find(const Table& table, const std::string& name) {
  return std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.first == name; });
}

[[noreturn]] void refuse(const std::string& text, const std::string& why, const std::string& nearest = "") {
  throw ConfigError(
      fmt::format("{} is '{}': {}; expected kind@rank:step, kind@rank:first-last or kind@rank:first-, the "
                  "kind being one of {}{}. Unset the variable to train without a fault",
                  kVariable, text, why, join(names(), ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean '{}'", nearest)));
}

/// The whole of `digits` as a whole number.
std::optional<int64_t> whole(std::string_view digits) {
  int64_t number = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, number);
  if (error != std::errc() || end != last || number < 0) return std::nullopt;
  return number;
}

}  // namespace

FaultPlan FaultPlan::parse(const std::string& text) {
  const size_t at = text.find('@');
  const size_t colon = text.find(':', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || colon == std::string::npos) refuse(text, "it names no rank and step");

  FaultPlan plan;
  const std::string name = text.substr(0, at);
  if (const auto* const kind = find(kKinds, name); kind != kKinds.end()) {
    plan.kind = kind->second;
  } else if (const auto* const moment = find(kMoments, name); moment != kMoments.end()) {
    plan.kind = FaultKind::kKillInSave;
    plan.moment = moment->second;
  } else if (const auto* const in_step = find(kStepMoments, name); in_step != kStepMoments.end()) {
    plan.kind = FaultKind::kOutOfMemory;
    plan.step_moment = in_step->second;
  } else {
    refuse(text, fmt::format("there is no fault '{}'", name), nearest_name(name, names()));
  }

  const std::string_view rank = std::string_view(text).substr(at + 1, colon - at - 1);
  const std::string_view steps = std::string_view(text).substr(colon + 1);
  const size_t dash = steps.find('-');
  const auto first = whole(steps.substr(0, dash));
  const bool open_ended = dash != std::string_view::npos && dash + 1 == steps.size();
  const auto last = dash == std::string_view::npos ? first
                    : open_ended                   ? plan.last_step
                                                   : whole(steps.substr(dash + 1));
  const auto rank_number = whole(rank);
  if (!rank_number) refuse(text, fmt::format("the rank '{}' is no whole number from 0 on", rank));
  if (!first || !last || *first < 1 || *last < *first) {
    refuse(text, fmt::format("'{}' are no steps, which are whole numbers from 1 on", steps));
  }
  plan.rank = *rank_number;
  plan.first_step = *first;
  plan.last_step = *last;
  return plan;
}

Fault& Fault::of_this_process() {
  static Fault fault([] {
    const char* const text = std::getenv(kVariable);
    return text == nullptr || *text == '\0' ? FaultPlan() : FaultPlan::parse(text);
  }());
  return fault;
}

void Fault::strike_at_step(int64_t rank, int64_t step) {
  const bool holds = rank == plan_.rank && plan_.first_step <= step && step <= plan_.last_step;
  holds_.store(holds, std::memory_order_relaxed);
  if (!holds) return;
  switch (plan_.kind) {
    case FaultKind::kKill:
      std::raise(SIGKILL);
      break;
    case FaultKind::kStop:
      std::raise(SIGSTOP);
      break;
    case FaultKind::kExit0:
      std::_Exit(0);
    case FaultKind::kExit1:
      std::_Exit(1);
    case FaultKind::kAbort:
      std::abort();
    case FaultKind::kSegfault:
      std::raise(SIGSEGV);
      break;
    case FaultKind::kThrow:
      throw std::runtime_error(fmt::format("thrown on purpose, as {} asks", kVariable));
    case FaultKind::kHang:
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    case FaultKind::kSlow:
      std::this_thread::sleep_for(std::chrono::duration<double>(kSlowSeconds));
      break;
    default:  // other code queries holds() for these
      break;
  }
}

void Fault::at_moment_of_saving(SaveMoment moment) const {
  if (holds(FaultKind::kKillInSave) && plan_.moment == moment) std::raise(SIGKILL);
}

int Fault::write_error() const {
  if (holds(FaultKind::kNoSpace)) return ENOSPC;
  return holds(FaultKind::kReadOnly) ? EACCES : 0;
}

}  // namespace adtrain

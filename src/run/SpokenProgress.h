#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/Clock.h"
#include "base/Text.h"
#include "telemetry/Console.h"

namespace adtrain {

/// Says how far a long reading has come, every ten seconds. For one thread.
class SpokenProgress {
 public:
  /// For example ("reading histories", "tasks").
  SpokenProgress(Console& console, std::string what, std::string pieces)
      : console_(&console), what_(std::move(what)), pieces_(std::move(pieces)) {}

  void operator()(int64_t done, int64_t of) {
    constexpr double kPauseSeconds = 10;
    if (since_.seconds() < kPauseSeconds) return;
    since_ = Stopwatch();
    console_->info(fmt::format("{}: {} of {} {}", what_, grouped(done), grouped(of), pieces_));
  }

 private:
  Console* console_;
  std::string what_, pieces_;
  Stopwatch since_;
};

}  // namespace adtrain

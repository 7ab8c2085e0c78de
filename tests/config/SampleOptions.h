#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/Section.h"

namespace adtrain {

enum class Block { kPreNorm, kPostNorm };

/// One key of every kind.
struct SampleOptions {
  int64_t steps = 100;
  double rate = 3e-4;
  bool masked = false;
  std::string folder = "histories";
  Block block = Block::kPreNorm;
  std::optional<int64_t> horizon;
  std::optional<double> clip;
  std::optional<std::string> resume;

  void declare(Section& section) {
    section.key("steps", steps, "Length.").unit("steps").at_least(1).at_most(1e6);
    section.key("rate", rate, "Peak.").above(0).below(1);
    section.key("masked", masked, "Hides padding.");
    section.key("folder", folder, "Where.");
    section.key("block", block, {{"pre_norm", Block::kPreNorm}, {"post_norm", Block::kPostNorm}},
                "Which block.");
    section.key("horizon", horizon, "Steps of an episode.").unit("steps").at_least(1);
    section.key("clip", clip, "Largest norm.").above(0).also_called("max_norm");
    section.key("resume", resume, "A run.").one_of({"latest", "best"});
    section.ignore("gen_interval", "there is nothing to generate");
  }
  void check(Findings& findings) const {
    if (horizon && *horizon > steps)
      findings.add("horizon", "found more steps than the run has; expected fewer");
    if (steps < 10) findings.add("rate", "found a rate for a longer run; expected one for a short run");
  }
};

}  // namespace adtrain

#pragma once

#include <string>
#include <vector>

#include "run/figures/RecordedRun.h"

namespace adtrain {

/// Runs that repeat one experiment.
struct RunGroup {
  std::string label;            ///< the keys that set it apart from the other groups: "lr 0.003"
  std::vector<size_t> members;  ///< numbers of the runs, in their order
};

/// Whether runs that differ in this key alone repeat one experiment: it is a seed, the name of a folder, or
/// concerns how a run is carried out and recorded.
bool only_repeats(const std::string& key);

/// Groups runs whose configurations differ only in keys that only repeat, or in those named in `over`; in the
/// order of their first runs. A group that no key sets apart has no label. Pieces of a transformer block that
/// follow from transformer_block are in no label.
std::vector<RunGroup> group_runs(const std::vector<RecordedRun>& runs, const std::vector<std::string>& over);

}  // namespace adtrain

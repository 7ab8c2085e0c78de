#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/RunConfig.h"

namespace adtrain {

/// A key whose value differs from that of the run to be continued.
struct ConfigChange {
  std::string key;
  std::string before, now;
  bool free = false;  ///< the run keeps its meaning: see Key::free_on_resume

  /// "lr 0.003 → 0.001".
  std::string text() const;
};

/// A key and its value as config.yaml has it.
struct ConfigValue {
  std::string key, value;
};

/// Every key that a run has resolved, in the order in which keys are documented, with defaults for those that
/// its program did not know; then keys that this program does not know. Values that are no longer allowed are
/// as they were written.
std::vector<ConfigValue> values_of(const std::string& yaml);

/// The keys whose values differ. A key that one list lacks has the value "none" there.
std::vector<ConfigChange> differences(const std::vector<ConfigValue>& before,
                                      const std::vector<ConfigValue>& now);

/// The configuration that an earlier start of a run has resolved. Keys that are unknown, or values that are
/// no longer allowed, leave the default: it is to be compared, not run.
RunConfig read_leniently(const std::string& yaml);

/// The differences between the YAML that an earlier start of a run has resolved and this start's
/// configuration, in the order in which keys are documented. Keys that the earlier program did not know count
/// as having this program's default; keys that this one does not know are ignored.
///
/// Batch sizes that this start leaves open count as those of the run. The global batch is compared as such,
/// under the name of global_batch_size: it may result from train_batch_size, the number of ranks and
/// accumulation.
std::vector<ConfigChange> changes_between(const std::string& earlier_yaml, int64_t earlier_ranks,
                                          const RunConfig& config, int64_t ranks);

/// Throws ConfigError that names each change that is neither free nor among the `allowed` keys, with both
/// values. `run` is its folder, for the message.
void refuse_other_meaning(const std::vector<ConfigChange>& changes, const std::vector<std::string>& allowed,
                          const std::string& run);

/// Throws ConfigError where one of them, given by this option, is no key of the configuration.
void check_key_names(const std::vector<std::string>& keys, const std::string& option);

}  // namespace adtrain

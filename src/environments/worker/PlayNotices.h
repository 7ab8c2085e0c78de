#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace adtrain {

/// What happens in a user's environments and stops nothing: it is counted, and said at its first occurrence
/// in each task.
class PlayNotices {
 public:
  using Say = std::function<void(const std::string& sentence)>;

  /// `say` may be empty.
  explicit PlayNotices(Say say) : say_(std::move(say)) {}

  /// Counts one more of `what` in a task. `sentence` is asked for where it is the first.
  void count(const std::string& what, int64_t task, const std::function<std::string()>& sentence) {
    const bool is_first = counts_[what][task]++ == 0;
    if (is_first && say_) say_(sentence());
  }
  /// How often it happened in each task.
  std::map<int64_t, int64_t> counts(const std::string& what) const {
    const auto found = counts_.find(what);
    return found == counts_.end() ? std::map<int64_t, int64_t>() : found->second;
  }

 private:
  Say say_;
  std::map<std::string, std::map<int64_t, int64_t>> counts_;
};

}  // namespace adtrain

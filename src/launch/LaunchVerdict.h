#pragma once

#include <cstdint>
#include <optional>

/// How ranks report to `adtrain launch` which of them failed first, so that launcher and ranks name the same
/// one.
namespace adtrain {

/// The variable in which the launcher passes its ranks the descriptor of its verdict pipe.
inline constexpr const char* kVerdictVariable = "ADTRAIN_VERDICT";

/// Reports to the launcher, where it listens, that `rank` failed first. Never blocks.
void tell_launcher(int64_t rank);

/// The launcher's end: an unnamed pipe.
class VerdictPipe {
 public:
  VerdictPipe();
  ~VerdictPipe();
  VerdictPipe(const VerdictPipe&) = delete;
  VerdictPipe& operator=(const VerdictPipe&) = delete;

  /// The descriptor that ranks inherit; −1 where the system gives none.
  int of_ranks() const { return ends_[1]; }
  /// The first report; nothing where no rank has reported.
  std::optional<int64_t> first();

 private:
  int ends_[2] = {-1, -1};
  std::optional<int64_t> first_;
};

}  // namespace adtrain

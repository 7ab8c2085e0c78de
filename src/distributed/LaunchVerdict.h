#pragma once

#include <cstdint>
#include <optional>

/// How `adtrain launch` hears from its ranks which of them failed first, so that both name the same one.
namespace adtrain {

/// The variable in which the launcher tells its ranks the descriptor that it hears by.
inline constexpr const char* kVerdictVariable = "ADTRAIN_VERDICT";

/// Tells the launcher, where it listens, that `rank` failed first. Never waits.
void tell_launcher(int64_t rank);

/// The launcher's end of it, an unnamed pipe.
class VerdictPipe {
 public:
  VerdictPipe();
  ~VerdictPipe();
  VerdictPipe(const VerdictPipe&) = delete;
  VerdictPipe& operator=(const VerdictPipe&) = delete;

  /// The descriptor that ranks inherit; −1 where the system gives none.
  int of_ranks() const { return ends_[1]; }
  /// What was heard first; nothing where no rank has said anything.
  std::optional<int64_t> first();

 private:
  int ends_[2] = {-1, -1};
  std::optional<int64_t> first_;
};

}  // namespace adtrain

#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace adtrain {

/// What can be made to go wrong on purpose.
enum class FaultKind {
  kNone,
  kKill,         ///< SIGKILL to itself
  kStop,         ///< SIGSTOP to itself
  kExit0,        ///< leaves at once with exit code 0
  kExit1,        ///< leaves at once with exit code 1
  kAbort,        ///< std::abort
  kSegfault,     ///< SIGSEGV
  kThrow,        ///< an exception that is not of our family
  kOutOfMemory,  ///< asks libtorch's allocator for more memory than there is
  kHang,         ///< the main thread sleeps for ever; other threads live
  kSlow,         ///< sleeps for Fault::kSlowSeconds before each step
  kNanLoss,      ///< the loss, and so the gradient, is not a number
  kNanGradient,  ///< the loss is right and the gradient is not a number
  kNoSpace,      ///< files cannot be written: no space left on the device
  kReadOnly,     ///< files cannot be written: permission denied
  kClockJump,    ///< the wall clock goes back by Fault::kClockJumpSeconds
  kKillInSave,   ///< SIGKILL to itself at one moment of saving a checkpoint
};

/// The moments of saving at which `kill_in_save:NAME` can strike: as soon as this is done and nothing more
/// is.
enum class SaveMoment {
  kFolder,    ///< "folder": the unfinished folder is there and empty
  kTensors,   ///< "tensors": the files of tensors are written
  kManifest,  ///< "manifest": all files are written and flushed
  kRenamed,   ///< "renamed": the folder has its final name
  kLatest,    ///< "latest": the link names it
  kPruning,   ///< "pruning": an older folder has lost its final name and is not deleted yet
};

/// What the variable ADTRAIN_FAULT asks for: `kind@rank:step`, `kind@rank:first-last` or `kind@rank:first-`.
struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  SaveMoment moment = SaveMoment::kFolder;  ///< of kKillInSave
  int64_t rank = 0;
  int64_t first_step = 0;  ///< optimizer steps as they are reported, so from 1 on
  int64_t last_step = std::numeric_limits<int64_t>::max();

  /// Throws ConfigError, which lists the kinds.
  static FaultPlan parse(const std::string& text);
};

/// A fault on purpose, for tests of what a run does when something breaks at a certain rank and step. One in
/// a process, read from ADTRAIN_FAULT; where that is unset or empty every call is one comparison. A fault
/// holds from the beginning of its first step to the beginning of the step after its last, savings in between
/// included.
///
/// at_step and at_moment_of_saving are for the main thread; the others may be called from any.
class Fault {
 public:
  static constexpr double kSlowSeconds = 2;
  static constexpr double kClockJumpSeconds = -3600;

  explicit Fault(const FaultPlan& plan) : plan_(plan) {}
  /// Throws ConfigError where the variable's text is not understood, at the first call.
  static Fault& of_this_process();

  /// Whether there is any, or one of this kind, now or later, here or on another rank.
  bool is_planned() const { return plan_.kind != FaultKind::kNone; }
  bool is_planned(FaultKind kind) const { return plan_.kind == kind; }

  /// `rank` begins optimizer step `step`, the first of a run being 1. What can strike here does.
  void at_step(int64_t rank, int64_t step) {
    if (is_planned()) strike_at_step(rank, step);
  }
  /// A checkpoint is being saved and this is done.
  void at_moment_of_saving(SaveMoment moment) const;

  /// Whether a fault of this kind holds now, for those that others must carry out.
  bool holds(FaultKind kind) const { return is_planned(kind) && holds_.load(std::memory_order_relaxed); }
  /// The errno with which writing a file fails now; 0 for none.
  int write_error() const;

 private:
  void strike_at_step(int64_t rank, int64_t step);

  const FaultPlan plan_;
  std::atomic<bool> holds_ = false;
};

}  // namespace adtrain

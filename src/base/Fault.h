#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace adtrain {

/// The faults that can be injected.
enum class FaultKind {
  kNone,
  kKill,         ///< SIGKILL to itself
  kStop,         ///< SIGSTOP to itself
  kExit0,        ///< leaves at once with exit code 0
  kExit1,        ///< leaves at once with exit code 1
  kAbort,        ///< std::abort
  kSegfault,     ///< SIGSEGV
  kThrow,        ///< an exception that is not of the Error family
  kOutOfMemory,  ///< requests more memory from libtorch's allocator than there is
  kHang,         ///< the main thread sleeps for ever; other threads live
  kSlow,         ///< sleeps for Fault::kSlowSeconds before each step
  kNanLoss,      ///< the loss, and so the gradient, is not a number
  kNanGradient,  ///< the loss is right and the gradient is not a number
  kNoSpace,      ///< files cannot be written: no space left on the device
  kReadOnly,     ///< files cannot be written: permission denied
  kClockJump,    ///< the wall clock goes back by Fault::kClockJumpSeconds
  kKillInSave,   ///< SIGKILL to itself at one moment of saving a checkpoint
};

/// The moments of saving at which `kill_in_save:NAME` can strike: right after the named operation.
enum class SaveMoment {
  kFolder,    ///< "folder": the unfinished folder exists and is empty
  kTensors,   ///< "tensors": the files of tensors are written
  kManifest,  ///< "manifest": all files are written and flushed
  kRenamed,   ///< "renamed": the folder has its final name
  kLatest,    ///< "latest": the link names it
  kPruning,   ///< "pruning": an older folder has lost its final name and is not deleted yet
};

/// The moments in and after a training step at which `out_of_memory:NAME` can strike.
enum class StepMoment {
  kBeginning,  ///< the kind without a name: before anything of the step
  kForward,    ///< "forward"
  kBackward,   ///< "backward": within it, where autograd computes the gradients
  kGradients,  ///< "gradients": before the sums over ranks are finished
  kOptimizer,  ///< "optimizer"
  kCapture,    ///< "capture": as kGradients, but only while the step is captured in a CUDA graph
  kReturns,    ///< "returns": where in-context returns are measured behind the step
};

/// The fault that the variable ADTRAIN_FAULT specifies: `kind@rank:step`, `kind@rank:first-last` or
/// `kind@rank:first-`.
struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  SaveMoment moment = SaveMoment::kFolder;          ///< of kKillInSave
  StepMoment step_moment = StepMoment::kBeginning;  ///< of kOutOfMemory
  int64_t rank = 0;
  int64_t first_step = 0;  ///< optimizer steps as reported, from 1
  int64_t last_step = std::numeric_limits<int64_t>::max();

  /// Throws ConfigError, which lists the kinds.
  static FaultPlan parse(const std::string& text);
};

/// Fault injection, for tests of how a run reacts to a failure at a certain rank and step. One per process,
/// read from ADTRAIN_FAULT; where that is unset or empty every call is one comparison. A fault holds from the
/// beginning of its first step to the beginning of the step after its last, including saves in between.
///
/// at_step and at_moment_of_saving are for the main thread; the other functions may be called from any
/// thread.
class Fault {
 public:
  static constexpr double kSlowSeconds = 2;
  static constexpr double kClockJumpSeconds = -3600;

  explicit Fault(const FaultPlan& plan) : plan_(plan) {}
  /// The first call throws ConfigError where the variable is malformed.
  static Fault& of_this_process();

  /// Whether any fault, or one of this kind, is planned, at any step and on any rank.
  bool is_planned() const { return plan_.kind != FaultKind::kNone; }
  bool is_planned(FaultKind kind) const { return plan_.kind == kind; }

  /// `rank` begins optimizer step `step`, the first of a run being 1. Triggers faults that strike at a step's
  /// beginning.
  void at_step(int64_t rank, int64_t step) {
    if (is_planned()) strike_at_step(rank, step);
  }
  /// To be called while a checkpoint is saved, when this operation is done.
  void at_moment_of_saving(SaveMoment moment) const;

  /// Whether a fault of this kind holds now, for the kinds that the caller must carry out.
  bool holds(FaultKind kind) const { return is_planned(kind) && holds_.load(std::memory_order_relaxed); }
  /// Whether memory must run out at this moment of the step.
  bool lacks_memory_at(StepMoment moment) const {
    return holds(FaultKind::kOutOfMemory) && plan_.step_moment == moment;
  }
  /// The errno with which writing a file fails now; 0 for none.
  int write_error() const;

 private:
  void strike_at_step(int64_t rank, int64_t step);

  const FaultPlan plan_;
  std::atomic<bool> holds_ = false;
};

}  // namespace adtrain

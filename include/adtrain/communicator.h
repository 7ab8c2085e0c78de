#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "adtrain/launch.h"

namespace adtrain {

enum class Reduction { kSum, kMax, kMin };

/// A collective operation under way. Its tensor must stay untouched until wait() returns.
class Work {
 public:
  struct Started;
  explicit Work(std::unique_ptr<Started> started);
  ~Work();
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;

  /// Returns when this rank's result is complete; on a GPU, when the current stream has been made to wait for
  /// it. To be called once. Throws as the operations of ProcessGroup do.
  void wait();

 private:
  std::unique_ptr<Started> started_;
};

/// The ranks of a run as one group, given by run_ranks().
///
/// Every operation is collective: all ranks call the same ones in the same order, with tensors of the same
/// shape and type. Tensors are contiguous and of float32, float64, int64 or uint8, on the CPU or on the
/// group's device; on a GPU float16 and bfloat16 too. Others throw std::invalid_argument before anything is
/// sent. On a GPU an operation is ordered on the current stream like a kernel, and its result is available to
/// whatever comes after it on that stream.
///
/// No call waits for ever: each has the deadline of `collective_timeout_seconds`. After it the call throws
/// std::runtime_error (exit code 7), which names the operation, its bytes, this rank and the backend. The
/// group cannot be used after that: let the error leave the body of run_ranks(). A group of one rank
/// communicates nothing.
///
/// To be used from one thread: not from several at once, and not alternately without synchronisation.
class ProcessGroup {
 public:
  struct Joined;
  explicit ProcessGroup(Joined& joined) : joined_(joined) {}
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  LaunchInfo launch() const;
  int64_t rank() const;
  int64_t world_size() const;
  bool is_root() const { return rank() == 0; }
  /// Where this rank computes: the CPU, or a GPU of its own.
  at::Device device() const;
  /// "none", "MPI" or "Gloo", or NCCL with one of them.
  std::string backend() const;

  /// Copies the content of rank `root`'s tensor to all ranks' tensors.
  void broadcast(at::Tensor& tensor, int64_t root = 0);
  /// Reduces over ranks, element by element and in place. The results are bit-identical on all ranks.
  void all_reduce(at::Tensor& tensor, Reduction reduction = Reduction::kSum);
  /// Starts summing over ranks in place. Several may be under way, started in the same order everywhere.
  Work start_all_reduce(at::Tensor& tensor);
  /// Every rank's tensor, stacked in the order of ranks: (world size, …). A new tensor.
  at::Tensor all_gather(const at::Tensor& tensor);
  /// Returns when every rank has called it.
  void barrier();
  /// Returns when the device has completed all work on this rank's current stream, including collectives in
  /// which other ranks take part. On the CPU there is nothing to wait for. Not collective.
  void synchronize();

  /// Rank 0's text, on every rank.
  std::string text_of_root(const std::string& text);
  /// Checks that all ranks have the same value. Where they differ it throws std::runtime_error (exit code 3)
  /// on every rank, which says what `name` is on which ranks.
  void check_same(const std::string& name, const std::string& value);

  /// Records what this rank is doing, for the report of a failure: a phase such as "loading data", and the
  /// number of optimizer steps completed. Not collective; cheap.
  void begin_phase(const std::string& phase);
  void completed_step(int64_t step);

  /// Ends this process at once with `exit_code`, and with it the run. Destructors do not run. Not collective.
  [[noreturn]] void abort(int exit_code);

  /// For the library itself.
  Joined& joined() const { return joined_; }

 private:
  Joined& joined_;
};

}  // namespace adtrain

#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// MPI in this process: started on first use, finalised by finish() or when the process ends normally. MPI
/// can be started only once, so all communicators share one session.
class MpiSession {
 public:
  static MpiSession& instance();

  /// Finalises MPI where this process has started it and not abandoned it: waits for every rank. Nothing may
  /// communicate afterwards. For programs that end without their exit handlers.
  static void finish();

  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// To be called after an error: MPI_Finalize, which waits for every rank, is skipped, so that this process
  /// can end and mpirun ends the others. `tensors` belong to unfinished operations and MPI may still write to
  /// them: they are never freed.
  void abandon(const std::vector<at::Tensor>& tensors = {});
  bool abandoned() const { return abandoned_; }

 private:
  MpiSession();
  ~MpiSession();

  void finalize();

  static MpiSession* started_;
  bool started_here_ = false;  ///< a program that embeds us may have started MPI itself
  bool abandoned_ = false;
  std::vector<at::Tensor> kept_;
};

}  // namespace adtrain

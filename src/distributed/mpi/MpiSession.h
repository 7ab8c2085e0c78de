#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// MPI in this process: started on first use, finalised when the process ends in order. MPI can be started
/// only once, so there is one session however many communicators come and go.
class MpiSession {
 public:
  static MpiSession& instance();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// Something went wrong: MPI_Finalize, which waits for every rank, is left out, so that this process can
  /// end and mpirun ends the others. `tensors` belong to operations that MPI may still write into: they are
  /// never freed.
  void abandon(const std::vector<at::Tensor>& tensors = {});
  bool abandoned() const { return abandoned_; }

 private:
  MpiSession();
  ~MpiSession();

  bool started_here_ = false;  ///< a program that embeds us may have started MPI itself
  bool abandoned_ = false;
  std::vector<at::Tensor> kept_;
};

}  // namespace adtrain

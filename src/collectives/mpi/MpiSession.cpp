#include "collectives/mpi/MpiSession.h"

#include <mpi.h>

#include "base/Error.h"

namespace adtrain {

MpiSession* MpiSession::started_ = nullptr;

MpiSession& MpiSession::instance() {
  static MpiSession session;
  return session;
}

void MpiSession::finish() {
  if (started_ != nullptr) started_->finalize();
}

MpiSession::MpiSession() {
  int provided = MPI_THREAD_SINGLE;
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&provided);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    // By default an error ends the process at once. Others would take this rank for the first to fail.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    started_here_ = true;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    throw EnvironmentError(
        "This MPI offers no MPI_THREAD_SERIALIZED, which a program with data threads needs; use an Open MPI "
        "that was built with thread support.");
  }
  started_ = this;
}

MpiSession::~MpiSession() {
  finalize();
  started_ = nullptr;
}

void MpiSession::finalize() {
  if (started_here_ && !abandoned_) MPI_Finalize();
  started_here_ = false;
}

void MpiSession::abandon(const std::vector<at::Tensor>& tensors) {
  abandoned_ = true;
  kept_.insert(kept_.end(), tensors.begin(), tensors.end());
}

}  // namespace adtrain

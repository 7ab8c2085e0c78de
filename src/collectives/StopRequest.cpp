#include "collectives/StopRequest.h"

#include <atomic>
#include <csignal>

#include <ATen/ATen.h>

#include "launch/HeldTermination.h"
#include "launch/StopSignals.h"

namespace adtrain {
namespace {

// The handler may run on any thread. It may use lock-free atomics.
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> received = 0;
StopSignals asked;

void remember(int signal) {
  received = signal;
  if (signal == SIGUSR1 || !asked.insists()) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // it arrives when this handler has returned
}

}  // namespace

StopRequest::StopRequest() {
  struct sigaction take {};
  take.sa_handler = remember;
  take.sa_flags = SA_RESTART;
  sigaction(SIGINT, &take, &before_int_);
  sigaction(SIGTERM, &take, &before_term_);
  sigaction(SIGHUP, nullptr, &before_hup_);
  if (before_hup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &take, nullptr);
  if (held_termination::take()) remember(SIGTERM);
  expect_usr1();
}

StopRequest::~StopRequest() {
  received = 0;
  asked.forget();
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGHUP, &before_hup_, nullptr);
}

void StopRequest::expect_usr1() {
  std::signal(SIGUSR1, remember);
}

int StopRequest::signal_number() {
  return received;
}

bool StopRequest::agreed(Communicator& communicator) const {
  if (communicator.world_size() == 1) return received != 0;
  at::Tensor flag = at::full({1}, received != 0 ? 1 : 0, at::kLong);
  communicator.all_reduce(flag, ReduceOp::kMax);
  return flag.const_data_ptr<int64_t>()[0] != 0;
}

}  // namespace adtrain

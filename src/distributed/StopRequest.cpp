#include "distributed/StopRequest.h"

#include <csignal>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
volatile std::sig_atomic_t received = 0;

void remember(int signal) {
  received = signal;
  if (signal != SIGUSR1) std::signal(signal, SIG_DFL);
}

}  // namespace

StopRequest::StopRequest() {
  for (const int signal : kSignals) std::signal(signal, remember);
}

StopRequest::~StopRequest() {
  received = 0;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
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

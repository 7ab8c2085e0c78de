#include "collectives/gloo/GlooCommunicator.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/Error.h"
#include "base/RunningTime.h"
#include "collectives/C10dTerms.h"
#include "collectives/LostPeer.h"
#include "collectives/gloo/HostAddress.h"
#include "watchdog/Activity.h"

// The wheel of torch ships ProcessGroupGloo's header and, inside libtorch_cpu, gloo's code, but not gloo's
// headers. Another gloo's headers suffice, as only pointers to gloo's types cross the boundary;
// tests/collectives checks this.

namespace adtrain {
namespace {

using c10d::ProcessGroupGloo;

c10d::ReduceOp::RedOpType kind_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kSum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

/// gloo measures its deadlines by a clock that continues while the process is suspended. So they are set far
/// in the future, and CollectiveWork::wait()'s deadline is the effective one.
constexpr std::chrono::hours kFarAway(24 * 365);

template <class Options>
Options without_deadline() {
  Options options;
  options.timeout = kFarAway;
  return options;
}

auto device_for(const LaunchContext& context) {
  if (const auto interface = process_environment("GLOO_SOCKET_IFNAME")) {
    return ProcessGroupGloo::createDeviceForInterface(*interface);
  }
  return ProcessGroupGloo::createDeviceForHostname(host_address(context));
}

}  // namespace

struct GlooCommunicator::Group {
  c10::intrusive_ptr<ProcessGroupGloo> process_group;
  /// Whether an operation was abandoned. One of gloo's threads keeps waiting in it, and the process group's
  /// destructor would wait for that thread.
  bool abandoned = false;

  ~Group() {
    if (abandoned) process_group.release();
  }
};

class GlooCommunicator::Operation final : public CollectiveWork {
 public:
  Operation(std::shared_ptr<Group> group, c10::intrusive_ptr<c10d::Work> work, CollectiveCall call,
            double timeout_seconds)
      : group_(std::move(group)),
        work_(std::move(work)),
        call_(std::move(call)),
        timeout_seconds_(timeout_seconds) {}
  ~Operation() override { group_->abandoned = group_->abandoned || !work_->isCompleted(); }

  void wait() override {
    RunningDeadline deadline(timeout_seconds_);
    while (!done_in_a_moment()) {
      if (deadline.passed()) throw_timed_out(call_, timeout_seconds_);
    }
  }

 private:
  bool done_in_a_moment() {
    const double seconds = std::min(timeout_seconds_, RunningTime::kMostBetweenLooks / 2);
    try {
      work_->wait(to_milliseconds(seconds));
      return true;
    } catch (const std::exception& error) {
      // Without an exception of its own the operation is under way, or has ended since.
      if (work_->exception() != nullptr) throw_lost_peer(call_, reason_of(error));
      return false;
    }
  }

  std::shared_ptr<Group> group_;
  c10::intrusive_ptr<c10d::Work> work_;  ///< holds the tensors too
  CollectiveCall call_;
  double timeout_seconds_;
};

GlooCommunicator::GlooCommunicator(const LaunchContext& context, const DistributedOptions& options,
                                   const c10::intrusive_ptr<c10d::Store>& store)
    : Communicator(context.rank, context.world_size, options.collective_timeout_seconds),
      group_(std::make_shared<Group>()) {
  const Activity::Waiting waiting("the start of Gloo");
  try {
    // gloo tries to connect for five times its timeout; operations have deadlines of their own.
    constexpr double kAttempts = 5;
    auto settings =
        ProcessGroupGloo::Options::create(to_milliseconds(options.rendezvous_timeout_seconds / kAttempts));
    settings->devices.push_back(device_for(context));
    group_->process_group = c10::make_intrusive<ProcessGroupGloo>(
        store, static_cast<int>(context.rank), static_cast<int>(context.world_size), settings);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError(fmt::format(
        "Rank {} of {} met the others at {}:{} but cannot connect to all of them ({}); name the network "
        "interface that leads to them in GLOO_SOCKET_IFNAME, and check that no firewall lies between.",
        context.rank, context.world_size, context.master_address, context.master_port, reason_of(error)));
  }
  group_->process_group->setTimeout(kFarAway);
  // Rank 0 may serve the store: no rank continues, and perhaps ends, before all have read what they need from
  // it.
  barrier();
}

GlooCommunicator::~GlooCommunicator() = default;

std::unique_ptr<CollectiveWork> GlooCommunicator::begin_broadcast(at::Tensor& tensor, int64_t root) {
  auto options = without_deadline<c10d::BroadcastOptions>();
  options.rootRank = root;
  std::vector<at::Tensor> tensors = {tensor};
  return std::make_unique<Operation>(group_, group_->process_group->broadcast(tensors, options),
                                     call("a broadcast", tensor.nbytes()), timeout_seconds());
}

std::unique_ptr<CollectiveWork> GlooCommunicator::begin_all_reduce(at::Tensor& tensor, ReduceOp op) {
  auto options = without_deadline<c10d::AllreduceOptions>();
  options.reduceOp = kind_of(op);
  std::vector<at::Tensor> tensors = {tensor};
  return std::make_unique<Operation>(group_, group_->process_group->allreduce(tensors, options),
                                     call("an all-reduce", tensor.nbytes()), timeout_seconds());
}

std::unique_ptr<CollectiveWork> GlooCommunicator::begin_all_gather(const at::Tensor& tensor,
                                                                   at::Tensor& gathered) {
  const auto options = without_deadline<c10d::AllgatherOptions>();
  at::Tensor from = tensor.view(-1), to = gathered.view(-1);
  return std::make_unique<Operation>(group_, group_->process_group->_allgather_base(to, from, options),
                                     call("an all-gather", tensor.nbytes()), timeout_seconds());
}

std::unique_ptr<CollectiveWork> GlooCommunicator::begin_barrier() {
  const auto options = without_deadline<c10d::BarrierOptions>();
  return std::make_unique<Operation>(group_, group_->process_group->barrier(options), call("a barrier", 0),
                                     timeout_seconds());
}

}  // namespace adtrain

#include "distributed/gloo/GlooCommunicator.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/Error.h"
#include "distributed/C10dTerms.h"
#include "distributed/LostPeer.h"
#include "distributed/Rendezvous.h"
#include "distributed/gloo/HostAddress.h"

// The wheel of torch ships ProcessGroupGloo's header and, inside libtorch_cpu, gloo's code, but not gloo's
// headers. Those of another gloo serve, as only pointers to gloo's types cross the border; tests/distributed
// guards that it stays so.

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

class GlooPending final : public Pending {
 public:
  GlooPending(c10::intrusive_ptr<c10d::Work> work, CollectiveCall call, double timeout_seconds)
      : work_(std::move(work)), call_(std::move(call)), timeout_seconds_(timeout_seconds) {}

  void wait() override {
    try {
      work_->wait(to_milliseconds(timeout_seconds_));
    } catch (const std::exception& error) {
      if (!work_->isCompleted()) throw_timed_out(call_, timeout_seconds_);
      throw_lost_peer(call_, reason_of(error));
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;  ///< holds the tensors too
  CollectiveCall call_;
  double timeout_seconds_;
};

/// gloo counts this deadline from the start of the operation, on its own threads; ours is Pending::wait()'s.
template <class Options>
Options with_deadline(double timeout_seconds) {
  Options options;
  options.timeout = to_milliseconds(timeout_seconds);
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
};

GlooCommunicator::GlooCommunicator(const LaunchContext& context, const DistributedOptions& options)
    : Communicator(context.rank, context.world_size, options.collective_timeout_seconds),
      group_(std::make_unique<Group>()) {
  const c10::intrusive_ptr<c10d::Store> store = rendezvous(context, options);
  try {
    // gloo tries five times that long to connect; operations have deadlines of their own.
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
  // Rank 0 may serve the store: nobody goes on, and perhaps ends, before all have read what they need there.
  barrier();
}

GlooCommunicator::~GlooCommunicator() = default;

std::unique_ptr<Pending> GlooCommunicator::begin_broadcast(at::Tensor& tensor, int64_t root) {
  auto options = with_deadline<c10d::BroadcastOptions>(timeout_seconds());
  options.rootRank = root;
  std::vector<at::Tensor> tensors = {tensor};
  return std::make_unique<GlooPending>(group_->process_group->broadcast(tensors, options),
                                       call("a broadcast", tensor.nbytes()), timeout_seconds());
}

std::unique_ptr<Pending> GlooCommunicator::begin_all_reduce(at::Tensor& tensor, ReduceOp op) {
  auto options = with_deadline<c10d::AllreduceOptions>(timeout_seconds());
  options.reduceOp = kind_of(op);
  std::vector<at::Tensor> tensors = {tensor};
  return std::make_unique<GlooPending>(group_->process_group->allreduce(tensors, options),
                                       call("an all-reduce", tensor.nbytes()), timeout_seconds());
}

std::unique_ptr<Pending> GlooCommunicator::begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) {
  const auto options = with_deadline<c10d::AllgatherOptions>(timeout_seconds());
  at::Tensor from = tensor.view(-1), to = gathered.view(-1);
  return std::make_unique<GlooPending>(group_->process_group->_allgather_base(to, from, options),
                                       call("an all-gather", tensor.nbytes()), timeout_seconds());
}

std::unique_ptr<Pending> GlooCommunicator::begin_barrier() {
  const auto options = with_deadline<c10d::BarrierOptions>(timeout_seconds());
  return std::make_unique<GlooPending>(group_->process_group->barrier(options), call("a barrier", 0),
                                       timeout_seconds());
}

}  // namespace adtrain

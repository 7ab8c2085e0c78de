#include "collectives/nccl/NcclCommunicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include "base/RunningTime.h"
#include "collectives/NcclVersion.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    case at::kByte:
      return ncclUint8;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    default:
      return ncclFloat32;  // the communicator accepts no other type
  }
}

ncclRedOp_t kind_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kSum:
      break;
  }
  return ncclSum;
}

/// Passes several operations to NCCL as one.
class OneLaunch {
 public:
  OneLaunch() : result_(ncclGroupStart()) {}

  /// `start` passes one of them; it is not called any more where one before has failed.
  template <class Start>
  void add(const Start& start) {
    if (result_ != ncclSuccess) return;
    result_ = start();
    if (result_ == ncclInProgress) result_ = ncclSuccess;  // of the group, at its end
  }
  /// To be called once.
  ncclResult_t end() {
    const ncclResult_t end = ncclGroupEnd();
    return result_ == ncclSuccess ? end : result_;
  }

 private:
  ncclResult_t result_;
};

/// NCCL divides a tensor into equal parts. What remains goes to the last rank.
struct EqualParts {
  EqualParts(const at::Tensor& tensor, int64_t rank, int64_t world_size)
      : size(static_cast<size_t>(part_of(tensor.numel(), 0, world_size).size)),
        rest(static_cast<size_t>(tensor.numel()) - size * static_cast<size_t>(world_size)),
        last(static_cast<int>(world_size - 1)) {
    const auto at_element = [&](int64_t element) {
      return static_cast<char*>(tensor.mutable_data_ptr()) +
             element * static_cast<int64_t>(tensor.element_size());
    };
    all = at_element(0);
    own = at_element(rank * static_cast<int64_t>(size));
    behind = at_element(world_size * static_cast<int64_t>(size));
  }

  size_t size, rest;         ///< elements of each part, and behind all of them
  int last;                  ///< the rank that has what is behind
  void *all, *own, *behind;  ///< where the parts, this rank's, and what remains begin
};

}  // namespace

struct NcclCommunicator::Group {
  ncclComm_t comm = nullptr;
  c10::cuda::CUDAStream stream;
  /// More of them in the destructor mean that the stack unwinds after an error.
  int exceptions = std::uncaught_exceptions();

  /// Whether NCCL, which works in the background, has finished its latest call. Throws where that failed.
  bool settled(const CollectiveCall& call) const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &state), call);
    check(state, call);
    return state != ncclInProgress;
  }
  void settle(const CollectiveCall& call, double timeout_seconds) const {
    RunningDeadline deadline(timeout_seconds);
    while (!settled(call)) {
      if (deadline.passed()) throw_timed_out(call, timeout_seconds);
      std::this_thread::yield();
    }
  }
  void check(ncclResult_t result, const CollectiveCall& call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const std::string detail = comm != nullptr ? ncclGetLastError(comm) : "";
    throw_lost_peer(call,
                    fmt::format("{}{}{}", ncclGetErrorString(result), detail.empty() ? "" : ": ", detail));
  }

  /// The sum of every rank's fp32 numbers times `factor`.
  ncclRedOp_t scaled_sum(double factor, const CollectiveCall& call) {
    const auto known = scaled_sums.find(factor);
    if (known != scaled_sums.end()) return known->second;
    if (latest != nullptr) await_launch(*latest);
    auto scale = static_cast<float>(factor);
    ncclRedOp_t operation = ncclSum;
    check(ncclRedOpCreatePreMulSum(&operation, &scale, ncclFloat32, ncclScalarHostImmediate, comm), call);
    return scaled_sums[factor] = operation;
  }

  /// An operation that was passed to NCCL.
  struct Operation {
    CollectiveCall call;
    double timeout_seconds;
    std::vector<at::Tensor> tensors;
    at::cuda::CUDAEvent done = {};
    bool launched = false;
  };

  /// Passes one operation to NCCL, to run after the work on the current stream. One of NCCL's threads
  /// launches it while the caller continues. But two threads must not add to a graph under capture at once.
  template <class Start>
  std::unique_ptr<CollectiveWork> begin(Operation operation, Start start) {
    if (latest != nullptr) await_launch(*latest);
    at::cuda::CUDAEvent ready;
    ready.record(c10::cuda::getCurrentCUDAStream());
    ready.block(stream);
    check(start(stream.stream()), operation.call);
    latest = std::make_shared<Operation>(std::move(operation));
    const bool capturing =
        c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    if (capturing) await_launch(*latest);
    return std::make_unique<Started>(*this, latest);
  }

  /// Until then NCCL accepts no other operation.
  void await_launch(Operation& operation) const {
    if (operation.launched) return;
    settle(operation.call, operation.timeout_seconds);
    operation.done.record(stream);
    operation.launched = true;
  }

  /// An operation on NCCL's stream; wait() makes the current stream wait for it.
  class Started final : public CollectiveWork {
   public:
    Started(const Group& group, std::shared_ptr<Operation> operation)
        : group_(group), operation_(std::move(operation)) {}
    void wait() override {
      group_.await_launch(*operation_);
      operation_->done.block(c10::cuda::getCurrentCUDAStream());
      operation_->tensors.clear();
    }

   private:
    const Group& group_;
    std::shared_ptr<Operation> operation_;
  };

  std::shared_ptr<Operation> latest = nullptr;
  std::map<double, ncclRedOp_t> scaled_sums = {};  ///< by factor; they end with the communicator
};

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> control, at::Device device,
                                   const DistributedOptions& options)
    : Communicator(control->rank(), control->world_size(), options.collective_timeout_seconds, device),
      control_(std::move(control)),
      group_(std::make_unique<Group>(
          Group{.stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())})) {
  const CollectiveCall joining = call("the start of NCCL", 0);
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (is_root()) group_->check(ncclGetUniqueId(&id), joining);
  at::Tensor shared = at::empty({static_cast<int64_t>(sizeof id)}, at::kByte);
  std::memcpy(shared.mutable_data_ptr<uint8_t>(), &id, sizeof id);
  control_->broadcast(shared, 0);
  std::memcpy(&id, shared.const_data_ptr<uint8_t>(), sizeof id);

  const Activity::Waiting waiting("the start of NCCL");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  group_->check(ncclCommInitRankConfig(&group_->comm, static_cast<int>(world_size()), id,
                                       static_cast<int>(rank()), &config),
                joining);
  group_->settle(joining, options.rendezvous_timeout_seconds);
}

NcclCommunicator::~NcclCommunicator() {
  if (group_->comm == nullptr) return;
  constexpr double kPatienceSeconds = 10;
  try {
    if (std::uncaught_exceptions() > group_->exceptions) throw PeerLostError("leaving because of an error");
    if (group_->latest != nullptr) group_->await_launch(*group_->latest);
    const CollectiveCall leaving = call("the end of NCCL", 0);
    group_->check(ncclCommFinalize(group_->comm), leaving);
    group_->settle(leaving, kPatienceSeconds);
    ncclCommDestroy(group_->comm);
  } catch (const std::exception&) {
    ncclCommAbort(group_->comm);
  }
}

std::string NcclCommunicator::backend() const {
  return fmt::format("NCCL {}, {} on the CPU", nccl_version(), control_->backend());
}

void NcclCommunicator::synchronize() {
  const Activity::Waiting busy("the work of its GPU");
  const CollectiveCall waiting = call("the work of its GPU", 0);
  at::cuda::CUDAEvent reached;
  reached.record(c10::cuda::getCurrentCUDAStream());
  RunningDeadline deadline(timeout_seconds());
  while (!reached.query()) {
    group_->settled(waiting);
    if (deadline.passed()) throw_timed_out(waiting, timeout_seconds());
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void NcclCommunicator::abort(ExitCode code) {
  control_->abort(code);  // it knows how to end the run under its launcher
  Communicator::abort(code);
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_broadcast(at::Tensor& tensor, int64_t root) {
  if (tensor.is_cpu()) {
    control_->broadcast(tensor, root);
    return std::make_unique<NoCollectiveWork>();
  }
  return group_->begin(
      {call("a broadcast", tensor.nbytes()), timeout_seconds(), {tensor}}, [&](cudaStream_t s) {
        return ncclBroadcast(tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()),
                             type_of(tensor), static_cast<int>(root), group_->comm, s);
      });
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_all_reduce(at::Tensor& tensor, ReduceOp op) {
  if (tensor.is_cpu()) {
    control_->all_reduce(tensor, op);
    return std::make_unique<NoCollectiveWork>();
  }
  return group_->begin(
      {call("an all-reduce", tensor.nbytes()), timeout_seconds(), {tensor}}, [&](cudaStream_t s) {
        return ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()),
                             type_of(tensor), kind_of(op), group_->comm, s);
      });
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_all_gather(const at::Tensor& tensor,
                                                                   at::Tensor& gathered) {
  if (tensor.is_cpu()) {
    gathered.copy_(control_->all_gather(tensor).view(gathered.sizes()));
    return std::make_unique<NoCollectiveWork>();
  }
  return group_->begin(
      {call("an all-gather", tensor.nbytes()), timeout_seconds(), {tensor, gathered}}, [&](cudaStream_t s) {
        return ncclAllGather(tensor.data_ptr(), gathered.data_ptr(), static_cast<size_t>(tensor.numel()),
                             type_of(tensor), group_->comm, s);
      });
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_sums(std::vector<Summand> summands) {
  if (std::ranges::any_of(summands, [](const Summand& each) { return each.to.is_cpu(); })) {
    return Communicator::begin_sums(std::move(summands));
  }
  std::vector<at::Tensor> tensors;
  std::vector<ncclRedOp_t> operations;
  size_t bytes = 0;
  for (const Summand& summand : summands) {
    tensors.insert(tensors.end(), {summand.from, summand.to});
    operations.push_back(
        summand.factor == 1 ? ncclSum : group_->scaled_sum(summand.factor, call("sums of gradients", 0)));
    bytes += summand.to.nbytes();
  }
  return group_->begin({call("sums of gradients", bytes), timeout_seconds(), std::move(tensors)},
                       [&](cudaStream_t stream) {
                         OneLaunch launch;
                         for (size_t k = 0; k < summands.size(); ++k) {
                           const auto& [from, to, factor] = summands[k];
                           launch.add([&] {
                             return ncclAllReduce(from.const_data_ptr(), to.mutable_data_ptr(),
                                                  static_cast<size_t>(to.numel()), type_of(to), operations[k],
                                                  group_->comm, stream);
                           });
                         }
                         return launch.end();
                       });
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_reduce_scatter(at::Tensor& tensor) {
  if (tensor.is_cpu()) return control_->start_reduce_scatter(tensor);
  const EqualParts parts(tensor, rank(), world_size());
  return group_->begin({call("a reduce-scatter", tensor.nbytes()), timeout_seconds(), {tensor}},
                       [&](cudaStream_t stream) {
                         OneLaunch launch;
                         if (parts.size > 0) {
                           launch.add([&] {
                             return ncclReduceScatter(parts.all, parts.own, parts.size, type_of(tensor),
                                                      ncclSum, group_->comm, stream);
                           });
                         }
                         if (parts.rest > 0) {
                           launch.add([&] {
                             return ncclReduce(parts.behind, parts.behind, parts.rest, type_of(tensor),
                                               ncclSum, parts.last, group_->comm, stream);
                           });
                         }
                         return launch.end();
                       });
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_all_gather_of_parts(at::Tensor& tensor) {
  if (tensor.is_cpu()) return control_->start_all_gather(tensor);
  const EqualParts parts(tensor, rank(), world_size());
  return group_->begin(
      {call("an all-gather", tensor.nbytes()), timeout_seconds(), {tensor}}, [&](cudaStream_t stream) {
        OneLaunch launch;
        if (parts.size > 0) {
          launch.add([&] {
            return ncclAllGather(parts.own, parts.all, parts.size, type_of(tensor), group_->comm, stream);
          });
        }
        if (parts.rest > 0) {
          launch.add([&] {
            return ncclBroadcast(parts.behind, parts.behind, parts.rest, type_of(tensor), parts.last,
                                 group_->comm, stream);
          });
        }
        return launch.end();
      });
}

std::unique_ptr<CollectiveWork> NcclCommunicator::begin_barrier() {
  synchronize();
  control_->barrier();
  return std::make_unique<NoCollectiveWork>();
}

}  // namespace adtrain

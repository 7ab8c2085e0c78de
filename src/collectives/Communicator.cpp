#include "collectives/Communicator.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include "base/StandardStreams.h"
#include "collectives/Meeting.h"
#include "collectives/RecordedCall.h"
#include "collectives/SingleCommunicator.h"
#include "collectives/nccl/NcclCommunicator.h"
#include "watchdog/Activity.h"
#include "watchdog/StartWatch.h"

namespace adtrain {
namespace {

/// Several operations that were started as one.
class Works final : public CollectiveWork {
 public:
  void wait() override {
    for (const auto& work : each) work->wait();
  }
  std::vector<std::unique_ptr<CollectiveWork>> each;
};

}  // namespace

std::unique_ptr<Communicator> Communicator::create(const LaunchContext& context,
                                                   const DistributedOptions& options) {
  if (context.world_size == 1) return std::make_unique<SingleCommunicator>();
  StartWatch watch(context, options, [](const Failure& first) { print_error("\n" + first.block()); });
  return Meeting::attend(context, options, watch)->join();
}

std::unique_ptr<Communicator> Communicator::extend(std::unique_ptr<Communicator> group, at::Device device,
                                                   const DistributedOptions& options) {
  if (!device.is_cuda()) return group;
  if (group->world_size() == 1) return std::make_unique<SingleCommunicator>(device);
  return std::make_unique<NcclCommunicator>(std::move(group), device, options);
}

void Communicator::check_tensor(const at::Tensor& tensor) const {
  const at::ScalarType type = tensor.scalar_type();
  const bool short_float = type == at::kHalf || type == at::kBFloat16;
  const bool known = type == at::kFloat || type == at::kDouble || type == at::kLong || type == at::kByte ||
                     (short_float && tensor.is_cuda());
  if (known && tensor.is_contiguous() && (tensor.is_cpu() || tensor.device() == device_)) return;
  throw std::invalid_argument(fmt::format(
      "A communicator was given a {}{} tensor on {}; it takes contiguous float32, float64, int64 and uint8 "
      "tensors on the CPU{}.",
      tensor.is_contiguous() ? "" : "non-contiguous ", c10::toString(type), tensor.device().str(),
      device_.is_cpu() ? "" : " and on " + device_.str()));
}

void Communicator::broadcast(at::Tensor& tensor, int64_t root) {
  check_tensor(tensor);
  if (root < 0 || root >= world_size_) {
    throw std::invalid_argument(fmt::format("Broadcast from rank {} in a group of {}.", root, world_size_));
  }
  const Activity::Waiting waiting("a broadcast");
  const RecordedCall recorded("communication: broadcast");
  if (tensor.numel() > 0) begin_broadcast(tensor, root)->wait();
}

void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op) {
  check_tensor(tensor);
  const Activity::Waiting waiting("an all-reduce");
  const RecordedCall recorded("communication: all-reduce");
  if (tensor.numel() > 0) begin_all_reduce(tensor, op)->wait();
}

std::unique_ptr<CollectiveWork> Communicator::start_all_reduce(at::Tensor& tensor) {
  check_tensor(tensor);
  if (tensor.numel() == 0) return std::make_unique<NoCollectiveWork>();
  return begin_all_reduce(tensor, ReduceOp::kSum);
}

std::unique_ptr<CollectiveWork> Communicator::start_sums(std::vector<Summand> summands) {
  for (const Summand& summand : summands) {
    check_tensor(summand.from);
    check_tensor(summand.to);
    const bool alike = summand.from.numel() == summand.to.numel() &&
                       summand.from.scalar_type() == summand.to.scalar_type() &&
                       summand.from.device() == summand.to.device();
    if (!alike || (summand.factor != 1 && summand.to.scalar_type() != at::kFloat)) {
      throw std::invalid_argument(
          fmt::format("A sum of {} elements of {} goes to {} of {}; expected the same of both, on one "
                      "device, and float32 where there is a factor.",
                      summand.from.numel(), c10::toString(summand.from.scalar_type()), summand.to.numel(),
                      c10::toString(summand.to.scalar_type())));
    }
  }
  std::erase_if(summands, [](const Summand& summand) { return summand.to.numel() == 0; });
  if (summands.empty()) return std::make_unique<NoCollectiveWork>();
  return begin_sums(std::move(summands));
}

std::unique_ptr<CollectiveWork> Communicator::begin_sums(std::vector<Summand> summands) {
  auto works = std::make_unique<Works>();
  for (Summand& summand : summands) {
    if (summand.factor != 1) {
      at::mul_out(summand.to, summand.from.view_as(summand.to),
                  c10::scalar_to_tensor(summand.factor).to(summand.to));
    } else if (!summand.from.is_same(summand.to)) {
      summand.to.copy_(summand.from.view_as(summand.to));
    }
    works->each.push_back(begin_all_reduce(summand.to, ReduceOp::kSum));
  }
  return works;
}

std::unique_ptr<CollectiveWork> Communicator::start_reduce_scatter(at::Tensor& tensor) {
  check_tensor(tensor);
  if (tensor.numel() == 0) return std::make_unique<NoCollectiveWork>();
  return begin_reduce_scatter(tensor);
}

std::unique_ptr<CollectiveWork> Communicator::start_all_gather(at::Tensor& tensor) {
  check_tensor(tensor);
  if (tensor.numel() == 0) return std::make_unique<NoCollectiveWork>();
  return begin_all_gather_of_parts(tensor);
}

/// All parts are summed on every rank: for Gloo, whose reduce-scatter in torch is an all-reduce as well.
std::unique_ptr<CollectiveWork> Communicator::begin_reduce_scatter(at::Tensor& tensor) {
  return begin_all_reduce(tensor, ReduceOp::kSum);
}

std::unique_ptr<CollectiveWork> Communicator::begin_all_gather_of_parts(at::Tensor& tensor) {
  auto works = std::make_unique<Works>();
  const at::Tensor elements = tensor.view(-1);
  for (int64_t owner = 0; owner < world_size_; ++owner) {
    const Part part = part_of(tensor.numel(), owner, world_size_);
    if (part.size == 0) continue;
    at::Tensor owned = elements.narrow(0, part.begin, part.size);
    works->each.push_back(begin_broadcast(owned, owner));
  }
  return works;
}

at::Tensor Communicator::all_gather(const at::Tensor& tensor) {
  check_tensor(tensor);
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), world_size_);
  at::Tensor gathered = at::empty({world_size_, tensor.numel()}, tensor.options().requires_grad(false));
  const Activity::Waiting waiting("an all-gather");
  const RecordedCall recorded("communication: all-gather");
  if (tensor.numel() > 0) begin_all_gather(tensor, gathered)->wait();
  return gathered.view(shape);
}

void Communicator::barrier() {
  const Activity::Waiting waiting("a barrier");
  const RecordedCall recorded("communication: barrier");
  begin_barrier()->wait();
}

void Communicator::abort(ExitCode code) {
  std::_Exit(static_cast<int>(code));
}

CollectiveCall Communicator::call(std::string name, size_t bytes) const {
  return {std::move(name), static_cast<int64_t>(bytes), backend(), rank_, world_size_};
}

}  // namespace adtrain

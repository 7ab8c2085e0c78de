#include <cstdlib>
#include <utility>

#include <c10/cuda/CUDAStream.h>

#include "adtrain/communicator.h"
#include "collectives/Agreement.h"
#include "framework/JoinedGroup.h"
#include "framework/LaunchInfo.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

ReduceOp op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
      return ReduceOp::kMax;
    case Reduction::kMin:
      return ReduceOp::kMin;
    case Reduction::kSum:
      break;
  }
  return ReduceOp::kSum;
}

}  // namespace

struct Work::Started {
  std::unique_ptr<CollectiveWork> operation;
};

Work::Work(std::unique_ptr<Started> started) : started_(std::move(started)) {}
Work::~Work() = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;

void Work::wait() {
  const Activity::Waiting waiting("an all-reduce");
  started_->operation->wait();
}

LaunchInfo ProcessGroup::launch() const {
  return info_of(joined_.context);
}

int64_t ProcessGroup::rank() const {
  return joined_.communicator.rank();
}

int64_t ProcessGroup::world_size() const {
  return joined_.communicator.world_size();
}

at::Device ProcessGroup::device() const {
  return joined_.communicator.device();
}

std::string ProcessGroup::backend() const {
  return joined_.communicator.backend();
}

void ProcessGroup::broadcast(at::Tensor& tensor, int64_t root) {
  joined_.communicator.broadcast(tensor, root);
}

void ProcessGroup::all_reduce(at::Tensor& tensor, Reduction reduction) {
  joined_.communicator.all_reduce(tensor, op_of(reduction));
}

Work ProcessGroup::start_all_reduce(at::Tensor& tensor) {
  auto started = std::make_unique<Work::Started>();
  started->operation = joined_.communicator.start_all_reduce(tensor);
  return Work(std::move(started));
}

at::Tensor ProcessGroup::all_gather(const at::Tensor& tensor) {
  return joined_.communicator.all_gather(tensor);
}

void ProcessGroup::barrier() {
  joined_.communicator.barrier();
}

void ProcessGroup::synchronize() {
  joined_.communicator.synchronize();
  // A single rank's communicator has no device and nothing to wait for.
  if (device().is_cuda()) c10::cuda::getCurrentCUDAStream(device().index()).synchronize();
}

std::string ProcessGroup::text_of_root(const std::string& text) {
  return adtrain::text_of_root(joined_.communicator, text);
}

void ProcessGroup::check_same(const std::string& name, const std::string& value) {
  adtrain::check_same(joined_.communicator, name, value);
}

void ProcessGroup::begin_phase(const std::string& phase) {
  Activity::of_this_process().begin(phase);
}

void ProcessGroup::completed_step(int64_t step) {
  Activity::of_this_process().at_step(step);
}

void ProcessGroup::abort(int exit_code) {
  joined_.communicator.abort(static_cast<ExitCode>(exit_code));
  std::_Exit(exit_code);  // not reached
}

}  // namespace adtrain

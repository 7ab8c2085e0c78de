#include "placement/PlacedNetwork.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "placement/StreamedModules.h"

namespace adtrain {
namespace {

using Predictions = AlgorithmDistillation::Predictions;
using Parts = AlgorithmDistillation::Parts;

/// A batch on its way.
struct Job {
  Batch batch;  ///< until the first stage has read it
  AlgorithmDistillation::Tokens tokens;
  std::shared_ptr<c10::Event> ready;  ///< of what the stage before has enqueued; null on CPUs
  /// Of rows that grow, by stage: those that keep keys and values on its device. Null for whole windows.
  std::shared_ptr<const std::vector<Parts>> growing;
  std::promise<EnqueuedPredictions> result;
};

/// What waits for a stage. Thread-safe.
class JobQueue {
 public:
  void push(std::unique_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_one();
  }
  /// No more will come.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  /// Waits for one; null after the last.
  std::unique_ptr<Job> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
    if (jobs_.empty()) return nullptr;
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  bool closed_ = false;
};

/// Modules `first` … `end` − 1 of the network on one device, and what runs them.
struct Stage {
  Stage(at::Device where, size_t begin) : device(where), first(begin), end(begin + 1) {}

  at::Device device;
  size_t first, end;
  std::unique_ptr<StreamedModules> streamed;  ///< where they are on the CPU for a GPU
  std::optional<c10::Stream> computes;        ///< on GPUs
  std::optional<c10::Stream> arrivals;        ///< on GPUs: for copies from the stage before
  JobQueue queue;
  std::jthread thread;
};

std::shared_ptr<c10::Event> recorded(const c10::Stream& stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

/// In this thread, and in those that begin after it. A thread asks its own setting.
void compute_by_one_thread() {
  if (at::get_num_threads() != 1) at::set_num_threads(1);
}

c10::Stream new_stream(at::Device device) {
  return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()).unwrap();
}

}  // namespace

std::vector<PlacedModule> modules_of(AlgorithmDistillation& model, at::ScalarType type) {
  std::vector<int64_t> bytes;
  for (const auto& [name, leaf] : model.parameters().named_leaves())
    bytes.push_back(leaf.numel() * static_cast<int64_t>(c10::elementSize(type)));
  return modules_of(model, bytes);
}

std::vector<PlacedModule> modules_of(AlgorithmDistillation& model, const std::vector<int64_t>& bytes) {
  const std::optional<Parts> parts = model.parts();
  const auto is_read_by_head = [&](const std::string& name) {
    return parts && std::ranges::find(parts->read_by_head, name) != parts->read_by_head.end();
  };
  std::vector<SizedParameter> parameters;
  for (const auto& [name, leaf] : model.parameters().named_leaves()) {
    parameters.push_back(
        {.name = name, .bytes = bytes.at(parameters.size()), .is_behind_blocks = is_read_by_head(name)});
  }
  return placed_modules(parameters);
}

Predictions PendingPredictions::get() {
  const EnqueuedPredictions enqueued = enqueued_.get();
  if (enqueued.ready) enqueued.ready->synchronize();
  return enqueued.predictions;
}

struct PlacedNetwork::Stages {
  Parts parts;
  std::deque<Stage> list;

  void make(const DeviceMap& map, const std::vector<at::Device>& gpus);
  void stream_weights(AlgorithmDistillation& model, const std::vector<PlacedModule>& modules,
                      const DeviceMap& map);
  void start();
  PendingPredictions submit(const Batch& batch, std::shared_ptr<const std::vector<Parts>> growing);
  /// The body of a stage's thread.
  void work(size_t place);
  void run(size_t place, const Stage* next, Job& job);
  void run_modules(Stage& stage, const Parts& by, Job& job, Predictions& predictions) const;
};

void PlacedNetwork::Stages::make(const DeviceMap& map, const std::vector<at::Device>& gpus) {
  const std::vector<DeviceMap::Row>& rows = map.rows();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (row > 0 && rows[row].device == rows[row - 1].device) {
      ++list.back().end;
      continue;
    }
    const MapDevice runs_on = rows[row].device.is_cpu() ? map.streaming_device() : rows[row].device;
    const at::Device device =
        runs_on.is_cpu() ? at::Device(at::kCPU) : gpus.at(static_cast<size_t>(runs_on.gpu));
    Stage& stage = list.emplace_back(device, row);
    if (device.is_cuda()) {
      stage.computes = new_stream(device);
      stage.arrivals = new_stream(device);
    }
  }
}

void PlacedNetwork::Stages::stream_weights(AlgorithmDistillation& model,
                                           const std::vector<PlacedModule>& modules, const DeviceMap& map) {
  if (map.streaming_buffers() == 0) return;
  const std::vector<std::vector<at::Tensor>> kept = model.parameters().kept();
  for (Stage& stage : list) {
    if (!map.rows()[stage.first].device.is_cpu()) continue;
    std::vector<std::vector<at::Tensor>> streamed;
    for (size_t i = stage.first; i < stage.end; ++i) {
      std::vector<at::Tensor>& of_module = streamed.emplace_back();
      for (const size_t leaf : modules[i].parameters)
        of_module.insert(of_module.end(), kept[leaf].begin(), kept[leaf].end());
    }
    stage.streamed = std::make_unique<StreamedModules>(streamed, stage.device, map.streaming_buffers());
  }
}

void PlacedNetwork::Stages::start() {
  for (size_t place = 0; place < list.size(); ++place)
    list[place].thread = std::jthread([this, place] { work(place); });
}

void PlacedNetwork::Stages::work(size_t place) {
  const at::NoGradGuard no_grad;
  Stage& stage = list[place];
  Stage* const next = place + 1 < list.size() ? &list[place + 1] : nullptr;
  bool ready = false;
  while (std::unique_ptr<Job> job = stage.queue.pop()) {
    try {
      if (!std::exchange(ready, true)) {
        if (!stage.computes) compute_by_one_thread();
        if (next != nullptr && next->arrivals)
          c10::cuda::setCurrentCUDAStream(c10::cuda::CUDAStream(*next->arrivals));
        if (stage.computes) {
          c10::cuda::set_device(stage.device.index());
          c10::cuda::setCurrentCUDAStream(c10::cuda::CUDAStream(*stage.computes));
        }
      }
      run(place, next, *job);
    } catch (...) {
      job->result.set_exception(std::current_exception());
      continue;
    }
    if (next != nullptr) next->queue.push(std::move(job));
  }
  if (next != nullptr) next->queue.close();
}

void PlacedNetwork::Stages::run(size_t place, const Stage* next, Job& job) {
  Stage& stage = list[place];
  if (job.ready) {
    job.ready->block(*stage.computes);
    for (at::Tensor* const tensor : job.tokens.tensors()) tensor->record_stream(*stage.computes);
  }
  Predictions predictions;
  run_modules(stage, job.growing ? job.growing->at(place) : parts, job, predictions);
  if (next != nullptr) {
    const bool moves = next->device != stage.device;
    if (moves) job.tokens = job.tokens.to(next->device);
    if (stage.computes) job.ready = recorded(moves && next->arrivals ? *next->arrivals : *stage.computes);
    return;
  }
  job.ready.reset();
  if (stage.computes) {  // the copies are waited for by who asked
    for (at::Tensor* const tensor : {&predictions.actions, &predictions.token_types}) {
      if (!tensor->defined()) continue;
      const at::Tensor there = at::empty(tensor->sizes(), at::TensorOptions(at::kFloat).pinned_memory(true));
      *tensor = there.copy_(*tensor, /*non_blocking=*/true);
    }
    job.ready = recorded(*stage.computes);
  }
  job.result.set_value({predictions, job.ready});
}

void PlacedNetwork::Stages::run_modules(Stage& stage, const Parts& by, Job& job,
                                        Predictions& predictions) const {
  const auto bring = [&](size_t module) {
    if (stage.streamed) stage.streamed->bring(module - stage.first);
  };
  const auto behind_blocks = static_cast<size_t>(by.blocks) + 1;
  size_t module = stage.first;
  if (module == 0) {
    bring(module);
    job.tokens = by.embeddings(job.batch.to(stage.device, /*non_blocking=*/true));
    job.batch = Batch();
    ++module;
  }
  const size_t end_of_blocks = std::min(stage.end, behind_blocks);
  while (module < end_of_blocks) {
    const size_t end = stage.streamed ? module + 1 : end_of_blocks;
    bring(module);
    job.tokens.x = by.through(job.tokens, static_cast<int64_t>(module) - 1, static_cast<int64_t>(end) - 1);
    module = end;
  }
  if (module == stage.end) return;
  bring(module);
  predictions = by.head(job.tokens);
}

PlacedNetwork::PlacedNetwork(AlgorithmDistillation& model, const std::vector<PlacedModule>& modules,
                             const DeviceMap& map, const std::vector<at::Device>& gpus, at::ScalarType type)
    : stages_(std::make_unique<Stages>()) {
  check(model);
  stages_->parts = *model.parts();
  if (map.rows().size() != static_cast<size_t>(stages_->parts.blocks) + 2)
    throw std::logic_error("A network in parts has modules before, in and behind its blocks.");
  std::vector<at::Device> devices(model.parameters().named_leaves().size(), at::kCPU);
  for (size_t i = 0; i < modules.size(); ++i) {
    const MapDevice& device = map.rows()[i].device;
    if (device.is_cpu()) continue;
    for (const size_t leaf : modules[i].parameters) devices[leaf] = gpus.at(static_cast<size_t>(device.gpu));
  }
  model.parameters().spread(devices, type);
  model.plan(LossPositions::kLast);  // chosen now, several threads may read it
  stages_->make(map, gpus);
  stages_->stream_weights(model, modules, map);
  stages_->start();
}

PlacedNetwork::~PlacedNetwork() {
  if (stages_->list.empty()) return;
  stages_->list.front().queue.close();
  for (Stage& stage : stages_->list) stage.thread.join();
}

void PlacedNetwork::check(AlgorithmDistillation& model) {
  if (model.parts()) return;
  throw ConfigError(fmt::format(
      "device_map: found it for {}, which runs on one device as a whole, as plug-ins' networks do: "
      "leave device_map out",
      model.options().architecture()));
}

PendingPredictions PlacedNetwork::Stages::submit(const Batch& batch,
                                                 std::shared_ptr<const std::vector<Parts>> growing) {
  auto job = std::make_unique<Job>();
  job->batch = batch;
  job->growing = std::move(growing);
  PendingPredictions pending;
  pending.enqueued_ = job->result.get_future();
  list.front().queue.push(std::move(job));
  return pending;
}

PendingPredictions PlacedNetwork::submit(const Batch& batch) {
  return stages_->submit(batch, nullptr);
}

PlacedNetwork::Rolling PlacedNetwork::rolling() {
  if (!stages_->parts.rolling) return nullptr;
  std::vector<Parts> of_stages;
  for (const Stage& stage : stages_->list)
    of_stages.push_back(stages_->parts.rolling(static_cast<int64_t>(stage.first) - 1));
  return [this, growing = std::make_shared<const std::vector<Parts>>(std::move(of_stages))](
             const Batch& step) { return stages_->submit(step, growing); };
}

int64_t PlacedNetwork::stages() const {
  return std::ssize(stages_->list);
}

}  // namespace adtrain

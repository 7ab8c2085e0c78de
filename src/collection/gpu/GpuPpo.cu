#include <algorithm>

#include "base/Cuda.h"
#include "base/Gpu.h"
#include "collection/gpu/GpuPpo.h"
#include "collection/gpu/Kernels.h"
#include "collection/gpu/Minibatch.cuh"

namespace adtrain {

using gpu::check;

PinnedBytes::PinnedBytes(size_t size) {
  check(cudaMallocHost(&data_, size), "cudaMallocHost");
}
PinnedBytes::~PinnedBytes() {
  cudaFreeHost(data_);
}

struct GpuPpo::Arrays {
  Arrays(const GpuProblem& problem, size_t tasks)
      : tasks(tasks),
        networks(tasks),
        samples(tasks * problem.samples()),
        opinions(tasks * problem.grid_size * problem.grid_size),
        agents(tasks * problem.ppo.streams),
        sound_rollouts(tasks),
        histories(tasks * problem.kept_steps() * gpu::kBytesOfTransition) {}

  static size_t bytes_of_task(const GpuProblem& problem) {
    return sizeof(GpuTask) + sizeof(gpu::NetworkState) + problem.samples() * sizeof(gpu::Sample) +
           problem.grid_size * problem.grid_size * sizeof(gpu::Opinion) +
           problem.ppo.streams * sizeof(GpuAgent) + sizeof(int32_t) +
           problem.kept_steps() * gpu::kBytesOfTransition;
  }

  gpu::TaskMemory memory() {
    return {tasks.data(),  networks.data(),       samples.data(),  opinions.data(),
            agents.data(), sound_rollouts.data(), histories.data()};
  }

  gpu::DeviceArray<GpuTask> tasks;
  gpu::DeviceArray<gpu::NetworkState> networks;
  gpu::DeviceArray<gpu::Sample> samples;
  gpu::DeviceArray<gpu::Opinion> opinions;
  gpu::DeviceArray<GpuAgent> agents;
  gpu::DeviceArray<int32_t> sound_rollouts;
  gpu::DeviceArray<uint8_t> histories;
};

std::optional<std::string> GpuPpo::objection(const GpuProblem& problem) {
  if (problem.grid_size > gpu::kLargestGrid) {
    return "grid_size is " + std::to_string(problem.grid_size) + "; GPUs collect in rooms of up to " +
           std::to_string(gpu::kLargestGrid);
  }
  if (problem.ppo.batch_size > gpu::kLargestBatch) {
    return "batch_size is " + std::to_string(problem.ppo.batch_size) + "; GPUs collect with up to " +
           std::to_string(gpu::kLargestBatch);
  }
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (const std::string obstacle = obstacle_of(visible_gpu(device)); !obstacle.empty())
    return "this process " + obstacle;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  if (bytes < gpu::update_shared_bytes()) {
    return "the GPU has " + std::to_string(bytes) +
           " bytes of shared memory for a thread block; collecting takes " +
           std::to_string(gpu::update_shared_bytes());
  }
  return std::nullopt;
}

int64_t GpuPpo::tasks_at_once(const GpuProblem& problem) {
  constexpr int64_t kWaves = 4;                        // so that the last tasks of a launch are few among all
  constexpr int64_t kHistoryBytes = int64_t{1} << 30;  // of pinned memory, twice
  int device = 0, processors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  const int64_t fitting = kHistoryBytes / (problem.kept_steps() * gpu::kBytesOfTransition);
  const int64_t wanted = std::min<int64_t>(kWaves * processors, fitting);
  // Whole waves: a thread block has a multiprocessor for itself.
  return std::max<int64_t>(wanted > processors ? wanted / processors * processors : wanted, 1);
}

int64_t GpuPpo::room_for(const GpuProblem& problem) {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free / Arrays::bytes_of_task(problem));
}

GpuPpo::GpuPpo(const GpuProblem& problem, int64_t capacity)
    : problem_(problem), arrays_(std::make_unique<Arrays>(problem, static_cast<size_t>(capacity))) {}

GpuPpo::~GpuPpo() = default;

void GpuPpo::begin(const std::vector<GpuTask>& tasks, const std::vector<float>& weights) {
  tasks_ = static_cast<int>(tasks.size());
  std::vector<gpu::NetworkState> networks(tasks.size());
  for (size_t task = 0; task < tasks.size(); ++task) {
    std::copy_n(&weights[task * gpu::kParameters], gpu::kParameters, networks[task].weights);
    networks[task].mean_power = networks[task].square_power = 1;
  }
  arrays_->tasks.upload(tasks.data(), tasks.size());
  arrays_->networks.upload(networks.data(), networks.size());
  arrays_->sound_rollouts.upload(std::vector<int32_t>(tasks.size()).data(), tasks.size());
}

void GpuPpo::roll_out(int64_t number) {
  gpu::launch_rollout(problem_, arrays_->memory(), tasks_, number);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize after a rollout");
}

void GpuPpo::update(int64_t number) {
  gpu::launch_update(problem_, arrays_->memory(), tasks_, number);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize after a round of updates");
}

std::vector<int32_t> GpuPpo::sound_rollouts() const {
  std::vector<int32_t> counts(static_cast<size_t>(tasks_));
  arrays_->sound_rollouts.download(counts.data(), counts.size());
  return counts;
}

void GpuPpo::histories(uint8_t* to) const {
  arrays_->histories.download(to, tasks_ * problem_.kept_steps() * gpu::kBytesOfTransition);
}

void GpuPpo::set_samples(const std::vector<gpu::Sample>& samples) {
  arrays_->samples.upload(samples.data(), samples.size());
}

gpu::NetworkState GpuPpo::networks(int64_t task) const {
  std::vector<gpu::NetworkState> all(static_cast<size_t>(tasks_));
  arrays_->networks.download(all.data(), all.size());
  return all[static_cast<size_t>(task)];
}

}  // namespace adtrain

#include "framework/RankDevice.h"

#include <map>
#include <optional>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "base/Host.h"
#include "collectives/Agreement.h"

namespace adtrain {
namespace {

/// What a rank sends the others: the GPU that it would take, or why it cannot have one.
struct Offer {
  std::optional<Gpu> gpu;
  int index = 0;
  std::string obstacle;
};

Offer offer_of(const LaunchContext& context) {
  const int count = visible_gpu_count();
  Offer offer;
  // Launchers make either all GPUs of the host visible to every rank, or only its own to each.
  offer.index = count == 1 ? 0 : static_cast<int>(context.local_rank);
  if (count == 0) {
    offer.obstacle = "sees no GPU (no driver, or CUDA_VISIBLE_DEVICES hides them)";
  } else if (offer.index >= count) {
    offer.obstacle = fmt::format("is number {} on its host, which shows {} GPUs", context.local_rank, count);
  } else {
    offer.gpu = visible_gpu(offer.index);
    offer.obstacle = obstacle_of(*offer.gpu);
    if (!offer.obstacle.empty()) offer.gpu.reset();
  }
  return offer;
}

/// The first reason, in the order of ranks, why not every rank can have a GPU; empty where all can.
std::string first_obstacle(const Offer& offer, Communicator& group) {
  const std::vector<std::string> obstacles = gather_texts(group, offer.obstacle);
  const std::vector<std::string> uuids = gather_texts(group, offer.gpu ? offer.gpu->uuid : "");
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (!obstacles[rank].empty()) return fmt::format("rank {} {}", rank, obstacles[rank]);
    const auto [owner, first] = owners.emplace(uuids[rank], rank);
    if (!first) return fmt::format("ranks {} and {} are on one GPU, {}", owner->second, rank, uuids[rank]);
  }
  return "";
}

}  // namespace

RankDevice RankDevice::choose(DeviceChoice choice, const LaunchContext& context, Communicator& group) {
  RankDevice chosen;
  if (choice == DeviceChoice::kCpu) return chosen;
  const Offer offer = offer_of(context);
  const std::string obstacle = first_obstacle(offer, group);
  if (!obstacle.empty()) {
    if (choice == DeviceChoice::kCuda) {
      throw EnvironmentError(fmt::format(
          "device: cuda is asked for, but {}; expected a GPU of its own for each rank: start fewer "
          "ranks, show them more GPUs or free those that others use, or set device: cpu",
          obstacle));
    }
    if (visible_gpu_count() > 0) {
      chosen.notice = fmt::format(
          "computing on the CPU, though there are GPUs: {}; with a free GPU for each rank they would be used",
          obstacle);
    }
    return chosen;
  }
  chosen.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(offer.index));
  chosen.name = offer.gpu->name;
  c10::cuda::set_device(chosen.device.index());
  c10::cuda::setCurrentCUDAStream(
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, chosen.device.index()));
  return chosen;
}

}  // namespace adtrain

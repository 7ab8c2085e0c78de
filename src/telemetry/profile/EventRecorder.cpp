#include "telemetry/profile/EventRecorder.h"

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "collectives/RecordedCall.h"

namespace adtrain {
namespace {

namespace kineto = torch::autograd::profiler;
using libkineto::ActivityType;

bool is_collective_kernel(std::string_view name) {
  return name.starts_with("nccl");
}

/// None for what is no work: marks, synchronisation, and the recording's own overhead.
std::optional<EventKind> kind_of(ActivityType type, std::string_view name) {
  switch (type) {
    case ActivityType::CONCURRENT_KERNEL:
      return is_collective_kernel(name) ? EventKind::kCollective : EventKind::kKernel;
    case ActivityType::GPU_MEMCPY:
    case ActivityType::GPU_MEMSET:
      return EventKind::kCopy;
    case ActivityType::CUDA_RUNTIME:
    case ActivityType::CUDA_DRIVER:
      return EventKind::kCall;
    case ActivityType::CPU_OP:
      if (name == RecordedCall::kGradientsStart) return EventKind::kCollectiveStart;
      return name.starts_with(RecordedCall::kCommunication) ? EventKind::kCollective : EventKind::kOperator;
    default:
      return std::nullopt;
  }
}

ProfileEvents events_of(const kineto::ProfilerResult& result) {
  ProfileEvents recorded;
  std::unordered_map<std::string, size_t> names;
  for (const kineto::KinetoEvent& from : result.events()) {
    std::string name = from.name();
    const std::optional<EventKind> kind = kind_of(static_cast<ActivityType>(from.activityType()), name);
    if (!kind || from.isHiddenEvent()) continue;
    const auto [known, added] = names.emplace(std::move(name), recorded.names.size());
    if (added) recorded.names.push_back(known->first);
    recorded.events.push_back({.start_ns = static_cast<int64_t>(from.startNs()),
                               .duration_ns = static_cast<int64_t>(from.durationNs()),
                               .correlation = static_cast<int64_t>(from.correlationId()),
                               .name = known->second,
                               .kind = *kind,
                               .on_device = from.deviceType() == c10::DeviceType::CUDA,
                               .row = from.deviceResourceId()});
  }
  return recorded;
}

}  // namespace

struct EventRecorder::Settings {
  kineto::ProfilerConfig config{kineto::ProfilerState::KINETO};
  std::set<kineto::ActivityType> activities{kineto::ActivityType::CPU};
};

EventRecorder::EventRecorder(c10::Device device) : settings_(std::make_unique<Settings>()) {
  if (device.is_cuda()) {
    settings_->activities.insert(kineto::ActivityType::CUDA);
  }
  kineto::prepareProfiler(settings_->config, settings_->activities);
}

EventRecorder::~EventRecorder() {
  if (!recording_) return;
  try {
    kineto::disableProfiler();
  } catch (const std::exception&) {  // another error is on its way as a rule, and says why
  }
}

void EventRecorder::start() {
  kineto::enableProfiler(settings_->config, settings_->activities);
  recording_ = true;
}

ProfileEvents EventRecorder::stop() {
  recording_ = false;
  return events_of(*kineto::disableProfiler());
}

int64_t EventRecorder::now_ns() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count();
}

}  // namespace adtrain

#include "parallel/WaitTimer.h"

#include <cstdint>
#include <utility>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

#include "base/Clock.h"

namespace adtrain {

class WaitTimer::Clock {
 public:
  virtual ~Clock() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual double seconds() const = 0;
  virtual double take_mean_seconds() = 0;
};

class WaitTimer::HostClock final : public Clock {
 public:
  void begin() override { watch_.restart(); }
  void end() override {
    seconds_ = watch_.seconds();
    sum_ += seconds_;
    ++pairs_;
  }
  double seconds() const override { return seconds_; }
  double take_mean_seconds() override {
    const auto pairs = std::exchange(pairs_, 0);
    const double sum = std::exchange(sum_, 0);
    return pairs == 0 ? 0 : sum / static_cast<double>(pairs);
  }

 private:
  Stopwatch watch_;
  double seconds_ = 0, sum_ = 0;
  int64_t pairs_ = 0;  ///< that are in the sum
};

class WaitTimer::GpuClock final : public Clock {
 public:
  GpuClock() {
    C10_CUDA_CHECK(cudaEventCreate(&begin_));
    C10_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~GpuClock() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  void begin() override { record(begin_); }
  void end() override {
    record(end_);
    recorded_ = true;
  }
  double seconds() const override {
    if (!recorded_) return 0;
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e-3 * static_cast<double>(milliseconds);
  }
  double take_mean_seconds() override { return seconds(); }

 private:
  /// Outside a CUDA graph only its "external" events can be read.
  static void record(cudaEvent_t event) {
    const bool capturing =
        c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    C10_CUDA_CHECK(cudaEventRecordWithFlags(event, c10::cuda::getCurrentCUDAStream(),
                                            capturing ? cudaEventRecordExternal : cudaEventRecordDefault));
  }

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  bool recorded_ = false;
};

WaitTimer::WaitTimer(c10::Device device) {
  if (device.is_cuda()) {
    clock_ = std::make_unique<GpuClock>();
  } else {
    clock_ = std::make_unique<HostClock>();
  }
}
WaitTimer::~WaitTimer() = default;
void WaitTimer::begin() {
  clock_->begin();
}
void WaitTimer::end() {
  clock_->end();
}
double WaitTimer::seconds() const {
  return clock_->seconds();
}
double WaitTimer::take_mean_seconds() {
  return clock_->take_mean_seconds();
}

}  // namespace adtrain

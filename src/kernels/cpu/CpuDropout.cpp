#include "kernels/cpu/CpuDropout.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

namespace adtrain::kernels {

CpuDropout CpuDropout::drawn(double rate) {
  if (rate == 0) return {0, rate};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return {generator.get<at::CPUGeneratorImpl>()->random64(), rate};
}

void CpuDropout::save(SavedData& data) const {
  data["dropout_seed"] = static_cast<int64_t>(seed_);
  data["dropout_rate"] = rate_;
}

CpuDropout CpuDropout::saved(SavedData& data) {
  return {static_cast<uint64_t>(data.at("dropout_seed").toInt()), data.at("dropout_rate").toDouble()};
}

}  // namespace adtrain::kernels

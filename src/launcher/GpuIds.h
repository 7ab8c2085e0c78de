#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// The GPUs of this host that a launch may use, in the order of its local ranks: numbers, or UUIDs that may
/// be cut short, as CUDA_VISIBLE_DEVICES takes them.
class GpuIds {
 public:
  /// Reads "0,2" or "GPU-8932f937,GPU-f2a1". `visible` is the value of CUDA_VISIBLE_DEVICES, if it is set:
  /// all ids must be in it. Throws ConfigError for anything but ids, for an id given twice and for one that
  /// `visible` hides.
  static GpuIds parse(const std::string& text, const std::optional<std::string>& visible);

  int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  /// The value of CUDA_VISIBLE_DEVICES that shows these GPUs alone, in this order.
  std::string text() const;
  /// Throws EnvironmentError where CUDA shows fewer than all of them. CUDA ignores the first id that it
  /// cannot use, and all after it.
  void check_shown(int64_t shown) const;

 private:
  std::vector<std::string> ids_;
};

}  // namespace adtrain

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulation/Emulator.h"

namespace adtrain::emulation {

/// The dynamic shared memory of a thread block, between guards that must stay as they are.
class SharedMemory {
 public:
  explicit SharedMemory(int bytes) : memory_(bytes + 2 * kGuardBytes + kAlignment), bytes_(bytes) {
    const size_t beyond = (reinterpret_cast<uintptr_t>(memory_.data()) + kGuardBytes) % kAlignment;
    first_ = kGuardBytes + (kAlignment - beyond) % kAlignment;
  }
  char* first() { return memory_.data() + first_; }
  /// NaN, everywhere.
  void poison() { std::fill(memory_.begin(), memory_.end(), kPoison); }
  void check_guards() {
    const auto untouched = [](const char* begin, const char* end) {
      return std::all_of(begin, end, [](char byte) { return byte == kPoison; });
    };
    if (!untouched(memory_.data(), first()) || !untouched(first() + bytes_, memory_.data() + memory_.size()))
      throw KernelError("a store outside shared memory");
  }

 private:
  static constexpr size_t kGuardBytes = 4096, kAlignment = 1024;
  static constexpr char kPoison = '\xff';

  std::vector<char> memory_;
  int bytes_;
  size_t first_;
};

}  // namespace adtrain::emulation

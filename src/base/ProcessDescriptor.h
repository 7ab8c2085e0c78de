#pragma once

#include <cstdint>

namespace adtrain {

/// A file descriptor of a process, which becomes readable when the process has ended (pidfd_open(2)). It
/// stands for that process alone, also once another has got its id. Owns the descriptor.
class ProcessDescriptor {
 public:
  ProcessDescriptor() = default;
  /// Has no descriptor where there is no such process, or where the system offers none (Linux before 5.3).
  explicit ProcessDescriptor(int64_t process);
  ~ProcessDescriptor();
  ProcessDescriptor(ProcessDescriptor&& other) noexcept;
  ProcessDescriptor& operator=(ProcessDescriptor&& other) noexcept;

  /// For poll(), which ignores −1: no descriptor.
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace adtrain

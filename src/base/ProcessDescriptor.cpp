#include "base/ProcessDescriptor.h"

#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

namespace adtrain {

ProcessDescriptor::ProcessDescriptor(int64_t process) {
#ifdef SYS_pidfd_open
  descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
#endif
}

ProcessDescriptor::~ProcessDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessDescriptor::ProcessDescriptor(ProcessDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

ProcessDescriptor& ProcessDescriptor::operator=(ProcessDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace adtrain

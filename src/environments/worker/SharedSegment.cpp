#include "environments/worker/SharedSegment.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {

SharedSegment::SharedSegment(size_t bytes)
    : bytes_(bytes), file_(memfd_create("adtrain-environments", MFD_CLOEXEC)) {
  void* mapped = MAP_FAILED;
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes)) == 0) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  if (mapped == MAP_FAILED) {
    const int reason = errno;
    if (file_ >= 0) close(file_);
    throw Error(ExitCode::kOutOfMemory,
                fmt::format("the system refused {} of memory that is shared with environments ({}); expected "
                            "room for it: lower eval_batch",
                            human_bytes(static_cast<double>(bytes)), std::strerror(reason)));
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedSegment::~SharedSegment() {
  munmap(data_, bytes_);
  close(file_);
}

}  // namespace adtrain

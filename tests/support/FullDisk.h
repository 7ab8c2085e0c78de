#pragma once

#include <csignal>
#include <filesystem>
#include <string>

#include <sys/mount.h>
#include <sys/resource.h>

#include "support/TemporaryFolder.h"
#include "support/ThreadSanitizer.h"

namespace adtrain {

/// No file that this process writes may grow beyond `bytes` while it lives: what a full disk looks like to a
/// writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limited{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*handler_)(int);
};

/// Shell words after which no file of the programs that follow grows beyond this size. ThreadSanitizer fills
/// a file of its own at the start, larger than that, unless it finds no folder for it.
inline std::string limit_files_to(int kibibytes) {
  return "ulimit -f " + std::to_string(kibibytes) + (kThreadSanitizer ? "; export TMPDIR=/nowhere; " : "; ");
}

/// A disk of its own, of so many KiB, in memory. Mounting takes root: tests ask mounted() first.
class SmallDisk {
 public:
  explicit SmallDisk(int kibibytes)
      : mounted_(mount("tmpfs", folder_.path().c_str(), "tmpfs", 0,
                       ("size=" + std::to_string(kibibytes) + "k").c_str()) == 0) {}
  ~SmallDisk() {
    if (mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  bool mounted_;
};

}  // namespace adtrain

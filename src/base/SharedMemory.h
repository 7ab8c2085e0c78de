#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

namespace adtrain {

/// Anonymous memory that other processes of this machine can map too: they are sent the file, or are told
/// where it is. Zeros at first. It has no name in a file system, so it goes when the last process that has
/// it ends, however that ends. All of it is there from the start: no later access finds the system without
/// memory.
class SharedMemory {
 public:
  /// What the memory is for.
  struct Purpose {
    const char* name;     ///< as /proc shows it
    const char* sharers;  ///< for messages: "environments"
    const char* advice;   ///< for messages: "lower eval_batch"
  };
  /// Throws Error (kOutOfMemory) where the system refuses it.
  SharedMemory(size_t bytes, const Purpose& purpose);

  /// Where another process finds it, as long as this one has it.
  struct Address {
    int64_t process;
    int64_t file;
    uint64_t device, inode;  ///< which file that is
    size_t bytes;
    /// One word, and what was one.
    std::string text() const;
    static std::optional<Address> parse(const std::string& text);
  };
  /// Maps what another process of this user has made under `purpose`. Throws EnvironmentError where it cannot
  /// be found, as in another container, or is something else.
  SharedMemory(const Address& address, const Purpose& purpose);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Address address() const;
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  int file() const { return file_; }
  /// From now on this process only reads: a write ends it by a signal.
  void make_read_only();

 private:
  size_t bytes_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

}  // namespace adtrain

#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

/// What HistoryFile and HistoryFileWriter need of HDF5's C interface, with ownership and errors as in the
/// rest of the code.
namespace adtrain {

/// The attribute of a data set that holds checksum_of its values as they are stored, uncompressed: in Python,
/// `zlib.crc32(dataset[()].tobytes())`.
inline constexpr const char* kChecksumAttribute = "crc32";

/// A lock on HDF5, which need not be thread-safe: while one exists, only its thread may call HDF5. It also
/// keeps HDF5 from printing errors.
class Hdf5Turn {
 public:
  Hdf5Turn();
  Hdf5Turn(const Hdf5Turn&) = delete;
  Hdf5Turn& operator=(const Hdf5Turn&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

/// Owns an HDF5 identifier, which its destructor closes. Only within an Hdf5Turn.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  /// `id` may be a failed call's result: then the handle is invalid and closes nothing.
  Hdf5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~Hdf5Handle() {
    if (id_ >= 0) closer_(id_);
  }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Hdf5Handle& operator=(Hdf5Handle&&) = delete;

  bool valid() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  /// Closes now, to learn whether that worked: a file's last bytes are written then.
  bool close() { return closer_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
  Closer closer_;
};

/// The most specific reason that HDF5 gives for its last failure.
std::string hdf5_reason();

/// Opens a file for reading. Throws DataError where it is missing, truncated or not HDF5.
Hdf5Handle open_hdf5(const std::filesystem::path& path);

}  // namespace adtrain

#pragma once

#include <filesystem>
#include <optional>

namespace adtrain {

/// Whether the file system says that there is no such file; false where it gives no answer.
bool is_absent(const std::filesystem::path& path);

/// A folder that is known by itself and not by its name: whether it still has that name, and where it is if
/// not. It is held open, which hinders nobody from moving or deleting it. Thread-safe.
class HeldFolder {
 public:
  /// Where it cannot be opened, nothing is known of it. `name` may be empty, for this process's own folder.
  explicit HeldFolder(std::filesystem::path name);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  /// Whether nothing, or another folder, has its name now; false where that is unclear.
  bool has_lost_its_name() const;
  /// Its present path; empty where it was deleted or that is unknown.
  std::filesystem::path place() const;
  /// The path of a file in it, wherever it is.
  std::filesystem::path file(const std::filesystem::path& name) const;

 private:
  /// Nothing where that is unclear.
  std::optional<bool> is_at(const std::filesystem::path& path) const;

  std::filesystem::path name_;
  int descriptor_;  ///< −1 where it could not be opened
};

}  // namespace adtrain

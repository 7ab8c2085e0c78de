#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/FileContent.h"

namespace adtrain {

/// What a checkpoint's folder must hold to be complete: manifest.json lists each file with its size and
/// checksum, and carries a checksum of itself.
///
/// Checksums are CRC-32 as zlib, gzip and zip compute it (Python: `zlib.crc32`), as 8 hexadecimal digits.
/// They guard against disks and cut-off copies, not against forgery.
struct Manifest {
  static constexpr const char* kFileName = "manifest.json";
  static constexpr std::string_view kFolderPrefix = "step-";  ///< of a checkpoint's folder, before the step
  static constexpr uint64_t kMostBytes = 16 << 20;            ///< of the manifest itself
  static constexpr int64_t kLargestCount = int64_t{1} << 53;  ///< JSON's readers agree on numbers up to this

  struct File {
    uint64_t bytes = 0;
    std::string crc32;
  };
  int64_t step = 0;
  double created = 0;  ///< seconds since 1970
  std::map<std::string, File> files;
  nlohmann::json state =
      nlohmann::json::object();  ///< the run's: world size, sample cursor, configuration, …

  std::string text() const;

  /// Throws CheckpointError where it is missing, malformed, damaged or of a later format, and where the
  /// folder is named after another step.
  static Manifest read(const std::filesystem::path& checkpoint);
  /// The same, whatever the folder's name is.
  static Manifest read_under_any_name(const std::filesystem::path& checkpoint);
  /// The same for the text; `path` is the file's name for messages.
  static Manifest parse(std::string_view text, const std::filesystem::path& path);

  /// N of a folder named `step-N`, as it is written: none of step-007. Nothing for any other name.
  static std::optional<int64_t> step_in_name(const std::filesystem::path& checkpoint);
  /// What is wrong where the folder, or the one that a link like `latest` points to, is named after another
  /// step than this manifest's, and what to do. Empty where the names agree or name no step.
  std::string fault_of_name(const std::filesystem::path& checkpoint) const;

  /// A count in `object` (steps, samples, bytes); nothing where it is missing or not a whole number from 0 to
  /// kLargestCount.
  static std::optional<int64_t> count_in(const nlohmann::json& object, const std::string& name);

  /// What one of its files holds. Throws CheckpointError where the manifest does not list the file, or where
  /// the file is missing or differs in size or content from the manifest.
  FileContent read_verified(const std::filesystem::path& checkpoint, const std::string& name) const;
  /// The same without memory for the whole file.
  void verify(const std::filesystem::path& checkpoint, const std::string& name) const;

 private:
  /// What is listed of a file whose size is as listed.
  const File& of_this_size(const std::filesystem::path& checkpoint, const std::string& name) const;
};

}  // namespace adtrain

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace adtrain {

/// What a checkpoint's folder must hold to be whole: manifest.json lists each file with its size and checksum.
struct Manifest {
  static constexpr const char* kFileName = "manifest.json";

  struct File {
    uint64_t bytes = 0;
    std::string checksum;  ///< XXH3, 64 bits, 16 hexadecimal digits
  };
  int64_t step = 0;
  double created = 0;  ///< seconds since 1970
  std::map<std::string, File> files;
  nlohmann::json state = nlohmann::json::object();

  void add_file(const std::string& name, std::string_view bytes);
  std::string text() const;

  /// Throws CheckpointError where it is missing or malformed.
  static Manifest read(const std::filesystem::path& checkpoint);
  /// Throws CheckpointError that names the first file that is missing, of another size or of another content.
  void verify(const std::filesystem::path& checkpoint) const;
};

}  // namespace adtrain

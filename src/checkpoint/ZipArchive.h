#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace adtrain {

/// The container of a `.pt` file: a zip archive whose entries are stored as they are, uncompressed and
/// unencrypted, with or without zip64 fields, as `torch.save` writes it. Entries are views of the archive's
/// bytes, so reading allocates memory in proportion to the number of entries. Nothing in the bytes is
/// trusted. The format: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3. Independent of libtorch.
class ZipArchive {
 public:
  /// `bytes` must outlive the archive. `path` is the file's name for messages. Throws CheckpointError that
  /// says what is wrong, and at which offset.
  static ZipArchive parse(std::string_view bytes, const std::filesystem::path& path);

  /// By name, without directories.
  const std::map<std::string, std::string_view, std::less<>>& entries() const { return entries_; }
  /// An entry's bytes. Throws CheckpointError where there is none of this name, or its CRC-32 differs.
  std::string_view content(std::string_view name) const;

 private:
  explicit ZipArchive(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::map<std::string, std::string_view, std::less<>> entries_;
  std::map<std::string, uint32_t, std::less<>> checksums_;
};

}  // namespace adtrain

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/Entry.h"
#include "config/YamlFile.h"

namespace adtrain {

/// A configuration file and all that it includes, directly or by others. Each file is read once, however
/// often it is included, so that reading takes time in proportion to the files' sizes. Errors in them are
/// collected, never thrown.
class IncludeTree {
 public:
  static constexpr size_t kMostFiles = 100;
  static constexpr uint64_t kMostBytes = 1 << 20;  ///< of all files together

  explicit IncludeTree(const std::filesystem::path& file);

  /// Each key once, in the order in which the values take effect.
  std::vector<Entry> entries() const;
  /// In the order in which the files are read.
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// The content of one file, and the names of the files that it includes, as in `files_`.
  struct File {
    YamlFile yaml;
    std::vector<std::string> includes;
  };
  struct Includer {
    std::filesystem::path canonical;
    std::string shown;
  };
  class LastWord;
  YamlFile parse(const std::filesystem::path& file);
  void read(const std::filesystem::path& file, std::vector<Includer>& chain);
  void read_include(const Entry& include, const std::filesystem::path& including,
                    std::vector<Includer>& chain);
  /// Both return whether they refused the include.
  bool refuse_circle(const Entry& include, const std::filesystem::path& file,
                     const std::vector<Includer>& chain);
  bool refuse_one_more(const Entry& include, const std::filesystem::path& file);
  void collect(const std::string& name, LastWord& last_word) const;

  std::string root_;
  uint64_t bytes_ = 0;                 ///< of the files read so far
  std::map<std::string, File> files_;  ///< by the name under which messages show them
  std::vector<std::string> errors_, warnings_;
};

}  // namespace adtrain

#pragma once

#include <filesystem>
#include <string>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {

/// A temporary folder of configuration files that is the working directory while it lives, so that messages
/// hold the short names which a user would type.
class ConfigTree {
 public:
  ConfigTree() { std::filesystem::current_path(folder_.path()); }
  ~ConfigTree() { std::filesystem::current_path(before_); }
  ConfigTree(const ConfigTree&) = delete;
  ConfigTree& operator=(const ConfigTree&) = delete;

  void write(const std::string& name, const std::string& text) const { write_file_atomically(name, text); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

}  // namespace adtrain

#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/Pickle.h"
#include "checkpoint/ZipArchive.h"
#include "model/Parameters.h"

namespace adtrain {

/// A `.pt` file of `torch.save`: a pickle, and the storages that its tensors are views of. Everything is
/// checked before it is used, and no tensor takes memory before it is asked for.
class TorchFile {
 public:
  /// `bytes` must outlive the file. Throws CheckpointError that says what is wrong with `path`.
  TorchFile(std::string_view bytes, std::filesystem::path path);

  const Pickle& pickle() const { return pickle_; }

  /// The tensors of a dict of texts and tensors, in its order, on the CPU; each owns its memory. Throws
  /// CheckpointError where the dict holds anything else, or a name twice. `what` is its name for messages.
  std::vector<NamedTensor> tensors(const Pickle::Value& dict, const std::string& what);
  /// One tensor, as above.
  at::Tensor tensor(const Pickle::Value& value, const std::string& name);
  /// Numbers, texts, lists and dicts as JSON; whole numbers and booleans that are keys become texts. Infinite
  /// numbers and NaN become null. Throws CheckpointError where there is a tensor.
  nlohmann::json plain(const Pickle::Value& value, const std::string& what) const;

 private:
  [[noreturn]] void fail(const std::string& fault) const;
  /// Checked against its checksum at its first use.
  std::string_view storage(const std::string& key);
  nlohmann::json plain(const Pickle::Value& value, const std::string& what, int64_t& most_bytes) const;

  std::filesystem::path path_;
  ZipArchive archive_;
  std::string root_;  ///< the archive's one folder, with a slash
  Pickle pickle_;
  std::set<std::string> checked_storages_;
  int64_t most_bytes_;  ///< that tensors may still take
};

}  // namespace adtrain

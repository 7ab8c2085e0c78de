#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace adtrain {

/// The values of a Python pickle, read by a closed unpickler: it knows the opcodes of protocol 2 that
/// `torch.save` writes, and the few globals below, whose meaning is built in. Nothing is imported and nothing
/// is called. Independent of libtorch.
///
/// - collections.OrderedDict: a dict; attributes that are set on it (state_dict's _metadata) are dropped
/// - torch.device: a text, "cuda:0"
/// - torch.FloatStorage and its like: the type of a tensor's elements
/// - torch._utils._rebuild_tensor_v2: a tensor, a view of a storage
/// - torch._utils._rebuild_parameter: the tensor in it
///
/// Values are numbered, and containers hold the numbers of their elements, so a value may occur in several
/// places. A value never contains itself: that is refused.
class Pickle {
 public:
  enum class Kind {
    kNone,
    kBoolean,
    kInteger,
    kReal,
    kText,
    kTuple,
    kList,
    kDict,
    kStorage,
    kTensor,
    kGlobal
  };
  using Index = uint32_t;

  struct Value {
    Kind kind = Kind::kNone;
    int64_t integer = 0;  ///< kInteger; kBoolean: 0 or 1; kStorage: elements; kTensor: offset in elements
    double real = 0;
    std::string text{};  ///< kText; kStorage: its key, `data/KEY` in the archive; kGlobal: its name
    /// kTuple, kList: the elements. kDict: key, value, key, value, … in order of insertion. kTensor: the
    /// storage, then a tuple of the shape and one of the strides. kStorage: a kGlobal, its type's.
    std::vector<Index> parts{};
  };

  static constexpr size_t kMostBytes = 16 << 20;
  static constexpr int kDeepest = 64;  ///< containers inside containers

  /// Memory is bounded by a multiple of the bytes. Throws CheckpointError that names what was found, and at
  /// which offset, and what is known. `path` is the file's name for messages.
  static Pickle parse(std::string_view bytes, const std::filesystem::path& path);

  const Value& root() const { return values_[root_]; }
  const Value& at(Index index) const { return values_[index]; }
  /// A dict's value for a text key; null where there is none. Of several, the last.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  std::vector<Value> values_;
  Index root_ = 0;
};

}  // namespace adtrain

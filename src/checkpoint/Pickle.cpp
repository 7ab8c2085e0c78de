#include "checkpoint/Pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;
using Index = Pickle::Index;

constexpr const char* kOrderedDict = "collections.OrderedDict";
constexpr const char* kDevice = "torch.device";
constexpr const char* kTensor = "torch._utils._rebuild_tensor_v2";
constexpr const char* kParameter = "torch._utils._rebuild_parameter";
constexpr const char* kGlobals[] = {kOrderedDict,
                                    kDevice,
                                    kTensor,
                                    kParameter,
                                    "torch.FloatStorage",
                                    "torch.DoubleStorage",
                                    "torch.HalfStorage",
                                    "torch.BFloat16Storage",
                                    "torch.LongStorage",
                                    "torch.IntStorage",
                                    "torch.ShortStorage",
                                    "torch.CharStorage",
                                    "torch.ByteStorage",
                                    "torch.BoolStorage"};

// A value can be recalled by two bytes, any number of times; what is copied or walked through at each of its
// uses must be short, or a small file would take much time and memory.
constexpr size_t kMostArguments = 8, kMostDimensions = 64, kLongestName = 64;

/// The machine that executes a pickle's opcodes.
class Machine {
 public:
  Machine(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  /// The values, and which of them is the whole.
  std::pair<std::vector<Value>, Index> run() {
    if (bytes_.size() > Pickle::kMostBytes)
      fail(fmt::format("found {} bytes; at most {} are read", bytes_.size(), Pickle::kMostBytes));
    while (true) {
      opcode_at_ = position_;
      const auto opcode = static_cast<uint8_t>(take(1)[0]);
      if (opcode == '.') break;
      execute(opcode);
    }
    if (stack_.size() != 1 || !marks_.empty())
      fail("found the end with {} values left; expected one", stack_.size());
    check_depths();
    return {std::move(values_), stack_.front()};
  }

 private:
  template <class... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    fail(fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  [[noreturn]] void fail(const std::string& fault) const {
    throw CheckpointError(
        fmt::format("{}: {} at byte {} of its pickle. Only the plain values, tensors and devices of a "
                    "checkpoint are read, nothing that runs code: save a dict of these by torch.save",
                    path_.string(), abridged(fault, 400), opcode_at_));
  }

  std::string_view take(size_t count) {
    if (count > bytes_.size() - position_) fail("found the end of the bytes; expected {} more", count);
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  template <class Number>
  Number take_number() {
    Number number{};
    std::memcpy(&number, take(sizeof(Number)).data(), sizeof(Number));
    return number;
  }

  void push(Value value) {
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Index>(values_.size() - 1));
  }
  void push_integer(int64_t integer) { push({.kind = Kind::kInteger, .integer = integer}); }

  Index pop() {
    if (stack_.size() <= floor()) fail("found an opcode that takes a value; there is none");
    const Index top = stack_.back();
    stack_.pop_back();
    return top;
  }
  /// Values below belong to what was begun before the last mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::vector<Index> pop_to_mark() {
    if (marks_.empty()) fail("found an opcode that takes values from a mark on; there is no mark");
    const auto mark = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Index> popped(mark, stack_.end());
    stack_.erase(mark, stack_.end());
    marks_.pop_back();
    return popped;
  }
  std::vector<Index> pop_several(size_t count) {
    std::vector<Index> popped(count);
    for (size_t i = count; i-- > 0;) popped[i] = pop();
    return popped;
  }

  /// The container on top of the stack, which stays there.
  Value& top(Kind kind, const char* expected) {
    if (stack_.size() <= floor() || values_[stack_.back()].kind != kind)
      fail("found elements for something else than a {}", expected);
    return values_[stack_.back()];
  }

  void append(const std::vector<Index>& elements) {
    Value& list = top(Kind::kList, "list");
    list.parts.insert(list.parts.end(), elements.begin(), elements.end());
  }
  void set_items(const std::vector<Index>& items) {
    if (items.size() % 2 != 0) fail("found {} keys and values for a dict; expected pairs", items.size());
    Value& dict = top(Kind::kDict, "dict");
    dict.parts.insert(dict.parts.end(), items.begin(), items.end());
  }

  void remember(uint32_t key) {
    if (stack_.size() <= floor()) fail("found nothing to remember");
    memory_[key] = stack_.back();
  }
  void recall(uint32_t key) {
    const auto found = memory_.find(key);
    if (found == memory_.end()) fail("found number {} of the memory, which holds none", key);
    stack_.push_back(found->second);
  }

  std::string_view take_line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("found a name without an end");
    const std::string_view line = take(end - position_);
    take(1);
    return line;
  }
  void push_global() {
    const std::string module(take_line()), name = module + "." + std::string(take_line());
    if (std::ranges::find(kGlobals, name) == std::end(kGlobals))
      fail("found {}, which is not one of the types that are known", abridged(name));
    push({.kind = Kind::kGlobal, .text = name});
  }

  void push_text(size_t length) {
    const std::string_view text = take(length);
    if (!is_utf8(text)) fail("found a text that is not UTF-8");
    push({.kind = Kind::kText, .text = std::string(text)});
  }

  void push_long(size_t length) {
    if (length > sizeof(int64_t)) fail("found a whole number of {} bytes; at most 8 are read", length);
    const std::string_view bytes = take(length);
    uint64_t number = length > 0 && static_cast<int8_t>(bytes.back()) < 0 ? ~uint64_t{0} : 0;
    std::memcpy(&number, bytes.data(), length);
    push_integer(static_cast<int64_t>(number));
  }

  /// ('storage', type, key, device, elements)
  void push_storage() {
    const Value& name = values_[pop()];
    const auto part = [&](size_t i) -> const Value& { return values_[name.parts[i]]; };
    if (name.kind != Kind::kTuple || name.parts.size() != 5 || part(0).text != "storage" ||
        part(1).kind != Kind::kGlobal || !part(1).text.ends_with("Storage") || part(2).kind != Kind::kText ||
        part(2).text.size() > kLongestName || part(4).kind != Kind::kInteger || part(4).integer < 0) {
      fail("found a reference that is not one to a tensor's storage");
    }
    Value storage{
        .kind = Kind::kStorage, .integer = part(4).integer, .text = part(2).text, .parts = {name.parts[1]}};
    push(std::move(storage));
  }

  /// A global is called with a tuple of arguments.
  void reduce() {
    const Value &arguments = values_[pop()], &callee = values_[pop()];
    if (callee.kind != Kind::kGlobal || arguments.kind != Kind::kTuple)
      fail("found a call of something that is not a known type");
    if (arguments.parts.size() > kMostArguments)
      fail("found {} with {} arguments, which is not known", callee.text, arguments.parts.size());
    const std::vector<Index> parts = arguments.parts;  // a push may move the values
    if (callee.text == kOrderedDict && parts.empty()) return push({.kind = Kind::kDict});
    if (callee.text == kDevice && !parts.empty() && parts.size() <= 2) return push_device(parts);
    if (callee.text == kTensor && parts.size() >= 4) return push_tensor(parts);
    if (callee.text == kParameter && !parts.empty() && values_[parts[0]].kind == Kind::kTensor)
      return stack_.push_back(parts[0]);
    fail("found {} with {} arguments, which is not known", callee.text, parts.size());
  }

  void push_device(const std::vector<Index>& parts) {
    const Value& name = values_[parts[0]];
    if (name.kind != Kind::kText || name.text.size() > kLongestName) fail("found a device without a name");
    std::string text = name.text;
    if (parts.size() == 2) text += fmt::format(":{}", values_[parts[1]].integer);
    push({.kind = Kind::kText, .text = std::move(text)});
  }

  /// (storage, offset, shape, strides, …)
  void push_tensor(const std::vector<Index>& parts) {
    const auto counts = [&](const Value& tuple) {
      return tuple.kind == Kind::kTuple && std::ranges::all_of(tuple.parts, [&](Index part) {
               return values_[part].kind == Kind::kInteger && values_[part].integer >= 0;
             });
    };
    const Value &storage = values_[parts[0]], &offset = values_[parts[1]];
    const Value &shape = values_[parts[2]], &strides = values_[parts[3]];
    if (storage.kind != Kind::kStorage || offset.kind != Kind::kInteger || offset.integer < 0 ||
        shape.parts.size() > kMostDimensions || shape.parts.size() != strides.parts.size() ||
        !counts(shape) || !counts(strides)) {
      fail("found a tensor whose storage, offset, shape or strides make no tensor");
    }
    push({.kind = Kind::kTensor, .integer = offset.integer, .parts = {parts[0], parts[2], parts[3]}});
  }

  /// Sets attributes, which only state_dict's OrderedDict has; they are not needed.
  void drop_attributes() {
    pop();
    top(Kind::kDict, "dict");
  }

  void execute(uint8_t opcode);

  /// Refuses containers inside containers to any depth, and so a container in itself. Walks from the leaves
  /// up: a value's depth is one more than its deepest part's.
  void check_depths() const {
    std::vector<int> depths(values_.size(), 0);  // 0: not known yet
    std::vector<std::pair<Index, size_t>> path;  // a value and which of its parts comes next
    for (Index start = 0; start < values_.size(); ++start) {
      if (depths[start] == 0) path.emplace_back(start, 0);
      while (!path.empty()) {
        const auto [index, next] = path.back();
        const std::vector<Index>& parts = values_[index].parts;
        if (next < parts.size()) {
          ++path.back().second;
          if (depths[parts[next]] == 0) path.emplace_back(parts[next], 0);
          if (path.size() > Pickle::kDeepest) fail("found containers more than {} deep", Pickle::kDeepest);
          continue;
        }
        int deepest = 0;
        for (const Index part : parts) deepest = std::max(deepest, depths[part]);
        depths[index] = deepest + 1;
        if (depths[index] > Pickle::kDeepest) fail("found containers more than {} deep", Pickle::kDeepest);
        path.pop_back();
      }
    }
  }

  std::string_view bytes_;
  const std::filesystem::path& path_;
  size_t position_ = 0, opcode_at_ = 0;
  std::vector<Value> values_;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;  ///< heights of the stack
  std::unordered_map<uint32_t, Index> memory_;
};

void Machine::execute(uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const auto protocol = take_number<uint8_t>(); protocol != 2)
        fail("found pickle protocol {}; torch.save writes 2 unless it is told otherwise", protocol);
      return;
    case '(':
      return marks_.push_back(stack_.size());
    case 'N':
      return push({.kind = Kind::kNone});
    case 0x88:
    case 0x89:  // NEWTRUE, NEWFALSE
      return push({.kind = Kind::kBoolean, .integer = opcode == 0x88 ? 1 : 0});
    case 'K':
      return push_integer(take_number<uint8_t>());
    case 'M':
      return push_integer(take_number<uint16_t>());
    case 'J':
      return push_integer(take_number<int32_t>());
    case 0x8a:  // LONG1
      return push_long(take_number<uint8_t>());
    case 'G':  // big-endian
      return push(
          {.kind = Kind::kReal, .real = std::bit_cast<double>(__builtin_bswap64(take_number<uint64_t>()))});
    case 'X':
      return push_text(take_number<uint32_t>());
    case ')':
      return push({.kind = Kind::kTuple});
    case 0x85:
    case 0x86:
    case 0x87:  // TUPLE1, TUPLE2, TUPLE3
      return push({.kind = Kind::kTuple, .parts = pop_several(opcode - 0x84)});
    case 't':
      return push({.kind = Kind::kTuple, .parts = pop_to_mark()});
    case ']':
      return push({.kind = Kind::kList});
    case 'a':
      return append(pop_several(1));
    case 'e':
      return append(pop_to_mark());
    case '}':
      return push({.kind = Kind::kDict});
    case 's':
      return set_items(pop_several(2));
    case 'u':
      return set_items(pop_to_mark());
    case 'q':
      return remember(take_number<uint8_t>());
    case 'r':
      return remember(take_number<uint32_t>());
    case 'h':
      return recall(take_number<uint8_t>());
    case 'j':
      return recall(take_number<uint32_t>());
    case 'c':
      return push_global();
    case 'R':
      return reduce();
    case 'b':
      return drop_attributes();
    case 'Q':
      return push_storage();
    default:
      fail("found the opcode 0x{:02x}, which is not known", opcode);
  }
}

}  // namespace

Pickle Pickle::parse(std::string_view bytes, const std::filesystem::path& path) {
  Pickle pickle;
  std::tie(pickle.values_, pickle.root_) = Machine(bytes, path).run();
  return pickle;
}

const Pickle::Value* Pickle::find(const Value& dict, std::string_view key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  for (size_t i = dict.parts.size(); i >= 2; i -= 2) {
    const Value& name = at(dict.parts[i - 2]);
    if (name.kind == Kind::kText && name.text == key) return &at(dict.parts[i - 1]);
  }
  return nullptr;
}

}  // namespace adtrain

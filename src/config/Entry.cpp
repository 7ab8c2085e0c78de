#include "config/Entry.h"

#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

std::string on_one_line(const YAML::Node& value) {
  YAML::Emitter emitter;
  emitter.SetMapFormat(YAML::Flow);
  emitter.SetSeqFormat(YAML::Flow);
  emitter << value;
  return emitter.c_str();
}

}  // namespace

std::string Origin::text() const {
  return line > 0 ? fmt::format("{}:{}", source, line) : source;
}

Entry Entry::of(std::string key, const YAML::Node& value, Origin origin) {
  Entry entry{std::move(key), Kind::kNull, "", std::move(origin)};
  switch (value.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      break;
    case YAML::NodeType::Scalar:
      entry.kind = Kind::kScalar;
      entry.text = value.Scalar();
      break;
    case YAML::NodeType::Sequence:
      entry.kind = Kind::kList;
      entry.text = on_one_line(value);
      break;
    case YAML::NodeType::Map:
      entry.kind = Kind::kMap;
      entry.text = on_one_line(value);
      entry.map = std::make_shared<const YAML::Node>(value);
      break;
  }
  return entry;
}

std::string Entry::found() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kScalar:
      return fmt::format("'{}'", abridged(text));
    case Kind::kList:
      return "the list " + abridged(text);
    case Kind::kMap:
      return "the nested map " + abridged(text);
  }
  return text;
}

bool Entry::same_value(const Entry& other) const {
  return kind == other.kind && (kind == Kind::kScalar ? same_meaning(text, other.text) : text == other.text);
}

}  // namespace adtrain

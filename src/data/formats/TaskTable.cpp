#include "data/formats/TaskTable.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

[[noreturn]] void refuse_line(const std::string& file, int64_t line, const std::string& what) {
  throw DataError(fmt::format("{}:{}: {}", file, line, what));
}

std::optional<double> finite(const std::string& text) {
  const auto number = Scalar<double>::parse(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

}  // namespace

const TaskTable::Row::Field* TaskTable::Row::find(const std::string& field) const {
  const auto found = fields_.find(field);
  return found == fields_.end() ? nullptr : &found->second;
}

std::vector<std::string> TaskTable::Row::fields() const {
  std::vector<std::string> names;
  for (const auto& [name, field] : fields_) names.push_back(name);
  return names;
}

std::optional<std::string> TaskTable::Row::text(const std::string& field) const {
  const Field* const found = find(field);
  if (found == nullptr) return std::nullopt;
  if (!found->is_scalar) refuse(field, "is no text; expected one, or no such key");
  return found->texts.front();
}

std::optional<double> TaskTable::Row::number(const std::string& field) const {
  const Field* const found = find(field);
  if (found == nullptr) return std::nullopt;
  const auto number = found->is_scalar ? finite(found->texts.front()) : std::nullopt;
  if (number) return number;
  refuse(field, "is no number; expected one, or no such key");
}

std::optional<std::vector<double>> TaskTable::Row::numbers(const std::string& field) const {
  const Field* const found = find(field);
  if (found == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const std::string& text : found->texts) {
    if (const auto number = finite(text)) numbers.push_back(*number);
  }
  if (!found->is_scalar && !numbers.empty() && numbers.size() == found->texts.size()) return numbers;
  refuse(field, "is no list of numbers; expected one, or no such key");
}

bool TaskTable::Row::is_text(const std::string& field) const {
  const Field* const found = find(field);
  return found != nullptr && found->is_scalar;
}

std::string TaskTable::Row::place(const std::string& field) const {
  const Field* const found = find(field);
  return fmt::format("{}:{}: '{}'", file_, found == nullptr ? line_ : found->line, abridged(name_));
}

void TaskTable::Row::refuse(const std::string& field, const std::string& fault) const {
  throw DataError(fmt::format("{}: {} {}", place(field), field, fault));
}

TaskTable TaskTable::read(const std::filesystem::path& file, const std::string& expected) {
  const std::string path = file.string();
  const auto line_of = [](const YAML::Node& node) { return int64_t{node.Mark().line} + 1; };
  TaskTable table;
  try {
    const YAML::Node root = YAML::Load(read_file(file));
    if (!root.IsMap()) refuse_line(path, line_of(root), expected);
    for (const auto& task : root) {
      Row row;
      row.file_ = path;
      row.name_ = task.first.as<std::string>();
      row.line_ = line_of(task.first);
      if (!task.second.IsMap()) {
        refuse_line(path, line_of(task.second),
                    fmt::format("'{}' is no map; {}", abridged(row.name_), expected));
      }
      const auto same = std::ranges::find(table.rows_, row.name_, &Row::name_);
      if (same != table.rows_.end()) {
        refuse_line(path, row.line_,
                    fmt::format("'{}' is there again, after line {}; expected each task once",
                                abridged(row.name_), same->line_));
      }
      for (const auto& pair : task.second) {
        if (pair.second.IsNull()) continue;
        Row::Field field{pair.second.IsScalar(), {}, line_of(pair.second)};
        if (field.is_scalar) field.texts.push_back(pair.second.Scalar());
        if (pair.second.IsSequence()) {
          for (const YAML::Node& element : pair.second)
            field.texts.push_back(element.IsScalar() ? element.Scalar() : "");
        }
        row.fields_[pair.first.as<std::string>()] = std::move(field);
      }
      table.rows_.push_back(std::move(row));
    }
  } catch (const YAML::Exception& error) {
    refuse_line(path, int64_t{error.mark.line} + 1, fmt::format("{}; {}", error.msg, expected));
  } catch (const std::filesystem::filesystem_error& error) {
    throw DataError(fmt::format("{}; {}", error.what(), expected));
  }
  return table;
}

}  // namespace adtrain

#include "data/formats/HistoryArrays.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr size_t kGroupsKnown = 32768;
constexpr int64_t kLargestRow = int64_t{1} << 26;

std::string text_of(ElementType type, const std::vector<int64_t>& shape) {
  return fmt::format("{} ({})", name_of(type), fmt::join(shape, ", "));
}

std::vector<int64_t> joined(const std::vector<int64_t>& leading, const std::vector<int64_t>& row) {
  std::vector<int64_t> shape = leading;
  shape.insert(shape.end(), row.begin(), row.end());
  return shape;
}

bool begins_with(const ArrayLayout& array, const std::vector<int64_t>& axes) {
  return array.shape.size() >= axes.size() && std::equal(axes.begin(), axes.end(), array.shape.begin());
}

/// Throws where more data sets of a group begin with the axes of `array` than with `leading`, and names one
/// that begins with `leading`.
void refuse_odd_one(const HistoryArrays::Group& group, const std::vector<int64_t>& leading,
                    const ArrayLayout& array) {
  const auto axes = static_cast<std::ptrdiff_t>(leading.size());
  if (std::ssize(array.shape) < axes) return;
  const std::vector<int64_t> common(array.shape.begin(), array.shape.begin() + axes);
  size_t with_common = 0, with_leading = 0;
  const ArrayLayout* odd = nullptr;
  for (const auto& entry : group) {
    const ArrayLayout& other = *entry.second;
    if (begins_with(other, common)) ++with_common;
    if (!begins_with(other, leading)) continue;
    ++with_leading;
    if (odd == nullptr) odd = &other;
  }
  if (odd == nullptr || with_common <= with_leading) return;
  throw DataError(
      fmt::format("{} is {}; expected {}, as {} of the {} data sets of its group begin", odd->place(),
                  text_of(odd->type, odd->shape),
                  text_of(odd->type, joined(common, {odd->shape.begin() + axes, odd->shape.end()})),
                  with_common, group.size()));
}

}  // namespace

HistoryArrays::HistoryArrays(std::vector<ColumnName> names, const HistorySourceOptions& options)
    : names_(std::move(names)),
      files_(options.files ? options.files : std::make_shared<HistoryFiles>(options.cache_bytes)),
      groups_(kGroupsKnown) {}

std::shared_ptr<const HistoryArrays::Group> HistoryArrays::group(const std::string& path,
                                                                 const std::string& name) {
  const std::string key = path + '\n' + name;
  if (auto known = groups_.get(key)) return known;
  auto columns = std::make_shared<Group>();
  const std::map<std::string, nlohmann::json> found = metadata().layouts(path, name);
  for (const auto& [kind, dataset] : names_) {
    const auto description = found.find(dataset);
    if (description == found.end() || columns->contains(kind)) continue;
    (*columns)[kind] = std::make_shared<const ArrayLayout>(
        ArrayLayout::from_json(description->second, path, fmt::format("{}/{}", name, dataset)));
  }
  groups_.put(key, columns, 1);
  return columns;
}

std::shared_ptr<const ArrayLayout> HistoryArrays::expect(const Group& group, const ColumnType& column,
                                                         const std::vector<int64_t>& leading,
                                                         const std::string& place,
                                                         const std::string& remedy) {
  const auto found = group.find(column.kind);
  if (found == group.end()) {
    std::string slip;
    if (!group.empty()) {
      const ArrayLayout& any = *group.begin()->second;
      slip = nearly(column.kind, any.path, any.dataset.substr(0, any.dataset.rfind('/')));
    }
    throw DataError(fmt::format("{} has no {}; expected them as in the other groups; {}", place,
                                name_of(column.kind), slip.empty() ? remedy : slip));
  }
  const ArrayLayout& array = *found->second;
  const std::vector<int64_t> shape = joined(leading, column.row);
  if (array.type == column.type && array.shape == shape) return found->second;
  refuse_odd_one(group, leading, array);
  throw DataError(fmt::format("{} is {}; expected {}, by the other data sets and groups", array.place(),
                              text_of(array.type, array.shape), text_of(column.type, shape)));
}

std::string HistoryArrays::nearly(ColumnKind kind, const std::string& path, const std::string& name) {
  std::vector<std::string> others;
  for (const auto& entry : metadata().layouts(path, name)) {
    const bool known =
        std::ranges::any_of(names_, [&](const ColumnName& column) { return entry.first == column.dataset; });
    if (!known) others.push_back(entry.first);
  }
  for (const ColumnName& column : names_) {
    const std::string nearest = column.kind == kind ? nearest_name(column.dataset, others) : "";
    if (nearest.empty()) continue;
    return fmt::format(
        "it has '{0}': if that is meant, rename it, as h5py does with "
        "file.move('{1}/{0}', '{1}/{2}')",
        abridged(nearest, 60), name, column.dataset);
  }
  return "";
}

ColumnType column_type_of(ColumnKind kind, const ArrayLayout& array, size_t leading) {
  if (array.shape.size() < leading) {
    throw DataError(fmt::format("{} has shape ({}); expected {} axes at least", array.place(),
                                fmt::join(array.shape, ", "), leading));
  }
  ColumnType column{
      kind, array.type, {array.shape.begin() + static_cast<std::ptrdiff_t>(leading), array.shape.end()}};
  double bytes = static_cast<double>(array.item());
  for (const int64_t extent : column.row) bytes *= static_cast<double>(extent);
  if (bytes < 1 || bytes > static_cast<double>(kLargestRow)) {
    throw DataError(fmt::format("{} has shape ({}), {} a step; expected 1 B to {}", array.place(),
                                fmt::join(array.shape, ", "), human_bytes(bytes),
                                human_bytes(static_cast<double>(kLargestRow))));
  }
  if (is_one_number(kind) && column.row_bytes() != size_of(column.type)) {
    throw DataError(fmt::format(
        "{} has shape ({}); expected one number a step: ({}); write the number that counts, or their sum",
        array.place(), fmt::join(array.shape, ", "),
        fmt::join(array.shape.begin(), array.shape.begin() + static_cast<std::ptrdiff_t>(leading), ", ")));
  }
  return column;
}

void prepare(HistoryWindow& window, const std::vector<ColumnType>& types, const ColumnKinds& kinds,
             int64_t steps) {
  window.steps = steps;
  size_t used = 0;
  for (const ColumnType& type : types) {
    if (!kinds.contains(type.kind)) continue;
    if (used == window.columns.size()) window.columns.emplace_back();
    Column& column = window.columns[used++];
    column.type = type;
    column.bytes.resize(static_cast<size_t>(steps) * type.row_bytes());
  }
  window.columns.resize(used);
}

}  // namespace adtrain

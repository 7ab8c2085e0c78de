#include "evaluation/scoring/ScoreTable.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "base/Error.h"
#include "evaluation/NpyFile.h"

namespace adtrain {
namespace {

/// What stands for a whole number that an action lacks. No action is this number: they come as float64, which
/// has no such one.
constexpr int64_t kNoNumber = std::numeric_limits<int64_t>::max();

template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// The number at `from`, which then is behind it.
template <class Number>
Number take(const char*& from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  from += sizeof number;
  return number;
}

/// A number of an action; NaN, where the action lacks it.
double whole_number_of(int64_t number) {
  return number == kNoNumber ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(number);
}

/// "", where there is no such number.
std::string text_of(float number) {
  return std::isnan(number) ? "" : fmt::format("{}", number);
}

}  // namespace

size_t ScoreTable::Layout::row_bytes() const {
  const size_t whole_numbers = 5 + static_cast<size_t>(elements);  // numbers of an action are as wide
  return whole_numbers * sizeof(int64_t) + 2 * sizeof(float);
}

void ScoreTable::append(const SampleScore& row) {
  for (const int64_t number : {row.sample, row.task, row.stream, row.position}) put(bytes_, number);
  for (size_t i = 0; i < static_cast<size_t>(layout_.elements); ++i) {
    const bool is_there = i < row.action.size();
    if (layout_.real) {
      put(bytes_, is_there ? row.action[i] : std::numeric_limits<double>::quiet_NaN());
    } else {
      put(bytes_, is_there ? static_cast<int64_t>(row.action[i]) : kNoNumber);
    }
  }
  put(bytes_, row.score.probability);
  put(bytes_, row.score.loss);
  put(bytes_, row.score.rank);
}

SampleScore ScoreTable::operator[](int64_t row) const {
  const char* from = bytes_.data() + static_cast<size_t>(row) * layout_.row_bytes();
  SampleScore found{};
  for (int64_t* const number : {&found.sample, &found.task, &found.stream, &found.position})
    *number = take<int64_t>(from);
  for (int64_t i = 0; i < layout_.elements; ++i)
    found.action.push_back(layout_.real ? take<double>(from) : whole_number_of(take<int64_t>(from)));
  found.score.probability = take<float>(from);
  found.score.loss = take<float>(from);
  found.score.rank = take<int64_t>(from);
  return found;
}

std::string ScoreTable::header() const {
  const std::string numbers = layout_.elements == 1 ? "" : fmt::format(", ({},)", layout_.elements);
  return npy_header(
      fmt::format("[('sample', '<i8'), ('task', '<i8'), ('stream', '<i8'), ('position', '<i8'), "
                  "('action', '{}'{}), ('probability', '<f4'), ('loss', '<f4'), ('rank', '<i8')]",
                  layout_.real ? "<f8" : "<i8", numbers),
      {size()});
}

std::string ScoreTable::npy() const {
  return header() + bytes_;
}

ScoreTable ScoreTable::from_npy(const Layout& layout, std::string_view npy, const std::string& origin) {
  constexpr size_t kPrefix = 10;  // of which the last two bytes say how long the rest of the header is
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(npy[at])); };
  const size_t header = npy.size() < kPrefix ? npy.size() : kPrefix + byte(8) + 256 * byte(9);
  const std::string_view rows = npy.substr(std::min(header, npy.size()));
  ScoreTable table(layout, std::string(rows.substr(0, rows.size() - rows.size() % layout.row_bytes())));
  if (table.npy() == npy) return table;
  throw DataError(
      fmt::format("{} is damaged: it is no array of scores with {} of an action; expected what adtrain score "
                  "has written: score again",
                  origin, layout.elements == 1 ? "one number" : fmt::format("{} numbers", layout.elements)));
}

std::string ScoreTable::csv() const {
  std::string csv = "sample,task,stream,position,";
  for (int64_t i = 0; i < layout_.elements; ++i)
    csv += layout_.elements == 1 ? "action," : fmt::format("action_{},", i);
  csv += "probability,loss,rank\n";
  for (int64_t row = 0; row < size(); ++row) {
    const SampleScore found = (*this)[row];
    auto end = std::back_inserter(csv);
    fmt::format_to(end, "{},{},{},{},", found.sample, found.task, found.stream, found.position);
    for (const double number : found.action) {
      if (std::isnan(number)) {
        csv += ",";
      } else if (layout_.real) {
        fmt::format_to(end, "{},", number);
      } else {
        fmt::format_to(end, "{},", static_cast<int64_t>(number));
      }
    }
    const std::string rank =
        found.score.rank == ActionScore::kNoRank ? "" : fmt::format("{}", found.score.rank);
    fmt::format_to(end, "{},{},{}\n", text_of(found.score.probability), text_of(found.score.loss), rank);
  }
  return csv;
}

}  // namespace adtrain

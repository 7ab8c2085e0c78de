#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ElementType.h"

namespace adtrain {

// GCC 12 takes an enumerator of a scoped enumeration to shadow a constant of the same name.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// What a column of a learning history holds: a row for each step.
enum class ColumnKind : uint8_t {
  kObservations,      ///< before the step
  kActions,           ///< taken in the step
  kRewards,           ///< of the step
  kNextObservations,  ///< after the step
  kEnds,              ///< whether the step was the last of an episode
  kTerminations,      ///< whether the episode ended by the task's own rule
  kTruncations,       ///< whether the episode was cut off
  kStepNumbers,       ///< the step's number in its episode, from 0 on
  kExpertActions,     ///< what a better policy would have done
};
#pragma GCC diagnostic pop
inline constexpr size_t kColumnKinds = 9;

/// "observations", "actions", …
const char* name_of(ColumnKind kind);
/// Whether a row is a single number, whatever the task: rewards, ends and step numbers.
bool is_one_number(ColumnKind kind);

/// A set of kinds. A value.
class ColumnKinds {
 public:
  ColumnKinds() = default;
  ColumnKinds(std::initializer_list<ColumnKind> kinds) {
    for (const ColumnKind kind : kinds) add(kind);
  }
  static ColumnKinds all() {
    ColumnKinds kinds;
    kinds.bits_ = (1U << kColumnKinds) - 1;
    return kinds;
  }
  void add(ColumnKind kind) { bits_ |= 1U << static_cast<unsigned>(kind); }
  bool contains(ColumnKind kind) const { return (bits_ >> static_cast<unsigned>(kind) & 1U) != 0; }
  /// Whether some kind is in both.
  bool shares(const ColumnKinds& other) const { return (bits_ & other.bits_) != 0; }

 private:
  uint32_t bits_ = 0;
};

/// The type of a column's values, as they are stored.
struct ColumnType {
  ColumnKind kind = ColumnKind::kObservations;
  ElementType type = ElementType::kUint8;
  std::vector<int64_t> row;  ///< shape of one row; empty where it is one number

  /// In bytes.
  size_t row_bytes() const;
  bool operator==(const ColumnType&) const = default;
};

/// Rows of one column in memory, one after the other in C order, little-endian, as narrow as they are stored.
struct Column {
  ColumnType type;
  std::vector<uint8_t> bytes;

  /// Number `element` of row `row` as a double; of a 64-bit integer the nearest one.
  double number(int64_t row, int64_t element = 0) const;
  /// The first row that holds a NaN or an infinity, if any; whole numbers hold none.
  std::optional<int64_t> first_not_finite() const;
};

/// Consecutive steps of one history.
struct HistoryWindow {
  int64_t steps = 0;
  std::vector<Column> columns;

  /// Null where it has no such column.
  const Column* find(ColumnKind kind) const;
};

}  // namespace adtrain

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/formats/Column.h"
#include "environments/Space.h"

/// Whether columns hold what the space of their tasks has.
namespace adtrain {

/// Throws DataError where rows of such a column cannot be of the space: of another shape, or real numbers
/// where it has whole ones. `origin` is named first.
void expect_stored_as(const Space& space, const ColumnType& column, const std::string& origin);

/// The first row that holds what the space does not have, if any: of a box NaN or an infinity, as bounds are
/// no promise; else a whole number outside. The column must be stored as the space asks.
std::optional<int64_t> first_outside(const Column& column, const Space& space);

/// For messages: the numbers of a row, the first few.
std::string text_of_row(const Column& column, int64_t row);

}  // namespace adtrain

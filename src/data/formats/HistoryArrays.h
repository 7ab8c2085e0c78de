#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/Column.h"
#include "data/formats/HistorySource.h"
#include "data/hdf5/ArrayReader.h"
#include "data/hdf5/BoundedCache.h"
#include "data/hdf5/Hdf5Metadata.h"

namespace adtrain {

/// A name under which files hold a column.
struct ColumnName {
  ColumnKind kind;
  const char* dataset;
};

/// The process that is asked about files, and what is kept of them, which sources may have in common: so
/// that several files take no more memory and no more processes than one. Any number of threads may use it.
struct HistoryFiles {
  explicit HistoryFiles(size_t cache_bytes) : reader(metadata, cache_bytes) {}

  Hdf5Metadata metadata;
  ArrayReader reader;
};

/// The data sets of HDF5 groups that are columns of histories: which there are, and parts of them. Layouts of
/// groups stay known within a bound. Any number of threads may use it.
class HistoryArrays {
 public:
  /// `names`: of two names of one kind, the first that a group has counts.
  HistoryArrays(std::vector<ColumnName> names, const HistorySourceOptions& options);

  Hdf5Metadata& metadata() { return files_->metadata; }

  /// Each column that a group has.
  using Group = std::map<ColumnKind, std::shared_ptr<const ArrayLayout>>;
  std::shared_ptr<const Group> group(const std::string& path, const std::string& name);

  /// The column of a group. Throws DataError where it is missing, where its values differ in type, or where
  /// its shape is not `leading` followed by the row; where most data sets of the group have other leading
  /// axes, it names one that has these. `place` is that of the group, and `remedy` what to do where the
  /// column is missing.
  std::shared_ptr<const ArrayLayout> expect(const Group& group, const ColumnType& column,
                                            const std::vector<int64_t>& leading, const std::string& place,
                                            const std::string& remedy);
  /// Which data set of a group may be meant by a column that it lacks, and what to do then; "" where none is
  /// called nearly so.
  std::string nearly(ColumnKind kind, const std::string& path, const std::string& name);
  void read(const std::vector<ArrayPart>& parts) { files_->reader.read(parts); }
  size_t cached_bytes() const { return files_->reader.cached_bytes(); }
  void drop_cached() { files_->reader.drop_cached(); }

 private:
  std::vector<ColumnName> names_;
  std::shared_ptr<HistoryFiles> files_;
  BoundedCache<std::string, Group> groups_;
};

/// The type of a column whose rows lie behind `leading` axes of an array. Throws DataError where it has fewer
/// axes, rows of more than 64 MiB, or several numbers a step where one is read (is_one_number).
ColumnType column_type_of(ColumnKind kind, const ArrayLayout& array, size_t leading);

/// Gives `window` the columns of these types and so many steps, without values.
void prepare(HistoryWindow& window, const std::vector<ColumnType>& types, const ColumnKinds& kinds,
             int64_t steps);

}  // namespace adtrain

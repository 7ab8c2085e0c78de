#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/Hdf5.h"

namespace adtrain {

/// What HDF5 files hold and where its bytes are: names, attributes, shapes, types, filters, addresses of
/// chunks. It reads no data. It belongs to the process that may die of a damaged file; all that it says is
/// JSON for the process that asks, which checks it. Every error is a DataError that names the file. Keeps a
/// few files open.
class Hdf5Catalog {
 public:
  /// Calls `take` with the names of a group's members, in order of their text, some at a time.
  void names(const std::string& path, const std::string& group,
             const std::function<void(std::vector<std::string> names)>& take);

  /// The attributes of a group or data set that are one text or one number, by name.
  nlohmann::json attributes(const std::string& path, const std::string& object);

  /// Of each group, {"attributes", "shape"}: its attributes, and the shape of its data set of that name (null
  /// where it has none). Only of the first groups, as many as one message holds, but of one at least.
  nlohmann::json survey(const std::string& path, const std::vector<std::string>& groups,
                        const std::string& dataset);

  /// Those of `names`, in the root, that are groups and hold all of these data sets.
  nlohmann::json groups_with(const std::string& path, const std::vector<std::string>& names,
                             const std::vector<std::string>& datasets);

  /// How each data set directly in a group lies in the file, by name: see description_of.
  nlohmann::json layouts(const std::string& path, const std::string& group);

  /// Of each chunk that is asked for, by its first element: address in the file, bytes there, mask of skipped
  /// filters, three numbers each; the address of a chunk that was never written is null.
  nlohmann::json chunks(const std::string& path, const std::string& dataset,
                        const std::vector<std::vector<hsize_t>>& first_elements);

 private:
  const Hdf5Handle& opened(const std::string& path);

  std::deque<std::pair<std::string, Hdf5Handle>> files_;  ///< the one opened last in front
};

}  // namespace adtrain

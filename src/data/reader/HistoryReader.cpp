#include "data/reader/HistoryReader.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/reader/HistoryDataset.h"

namespace adtrain {
namespace {

/// Longer attributes are not settings.
constexpr size_t kLongestSetting = 4096;

herr_t add_setting(hid_t location, const char* name, const H5A_info_t*, void* settings) {
  const Hdf5Handle attribute(H5Aopen(location, name, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return 0;
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose),
      space(H5Aget_space(attribute.get()), H5Sclose);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0) return 0;
  const size_t length = H5Tget_size(type.get());
  if (length > kLongestSetting || H5Sget_simple_extent_npoints(space.get()) != 1) return 0;
  std::string value(length, '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) return 0;
  value.resize(std::min(value.size(), value.find('\0')));
  (*static_cast<HistorySettings*>(settings))[name] = value;
  return 0;
}

/// The names of a file's root: tasks' numbers, and the first of the others.
struct RootNames {
  std::vector<NumberRange> tasks;
  std::vector<std::string> others;
};

herr_t add_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  constexpr size_t kMostOthers = 4;
  auto& found = *static_cast<RootNames*>(names);
  const auto range = NumberRange::parse(name);
  if (range && std::to_string(range->first) == name) {
    found.tasks.push_back(*range);
  } else if (found.others.size() < kMostOthers) {
    found.others.push_back(fmt::format("'{}'", abridged(name, 40)));
  }
  return 0;
}

NumberRanges tasks_of(const Hdf5Handle& file, const std::filesystem::path& path) {
  RootNames names;
  hsize_t begin = 0;
  if (H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &begin, add_name, &names) < 0) {
    throw DataError(
        fmt::format("{}: its groups cannot be listed (HDF5 says: {}); the file is damaged; fetch or collect "
                    "it again",
                    path.string(), hdf5_reason()));
  }
  if (names.tasks.empty()) {
    throw DataError(fmt::format(
        "{}: found {}; expected one group a task, named by its number, as '0': docs/history-format.md says "
        "what they hold",
        path.string(), names.others.empty() ? "no group" : "no task, but " + join(names.others, ", ")));
  }
  return NumberRanges(std::move(names.tasks));
}

}  // namespace

HistoryReader::HistoryReader(std::filesystem::path path)
    : path_(std::move(path)), file_(open_hdf5(path_)), tasks_(tasks_of(file_, path_)) {
  const HistoryDataset actions(path_, file_, fmt::format("{}/actions", tasks_.smallest()));
  if (actions.shape().size() != 2 || actions.shape()[0] == 0 || actions.shape()[1] == 0) {
    actions.fail(fmt::format("has shape {}; expected (steps, streams)", shape_text(actions.shape())));
  }
  steps_ = static_cast<int64_t>(actions.shape()[0]);
  streams_ = static_cast<int64_t>(actions.shape()[1]);
}

HistorySettings HistoryReader::settings() const {
  HistorySettings settings;
  hsize_t begin = 0;
  H5Aiterate2(file_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &begin, add_setting, &settings);
  return settings;
}

void HistoryReader::check_optimal_actions(int64_t task) const {
  const std::string name = fmt::format("{}/optimal_actions", task);
  if (H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) <= 0) return;
  const HistoryDataset dataset(path_, file_, name);
  const std::vector<hsize_t> shape = {static_cast<hsize_t>(streams_), static_cast<hsize_t>(steps_)};
  dataset.expect_shape(shape);
  dataset.read_integers(shape);
}

History HistoryReader::read(int64_t task, int64_t steps, int64_t streams) const {
  const auto dataset = [&](const char* name, hsize_t coordinates) {
    HistoryDataset found(path_, file_, fmt::format("{}/{}", task, name));
    std::vector<hsize_t> expected = {static_cast<hsize_t>(steps_), static_cast<hsize_t>(streams_)};
    if (coordinates > 1) expected.push_back(coordinates);
    found.expect_shape(expected);
    return found;
  };
  const auto size_of = [&](hsize_t coordinates) {
    std::vector<hsize_t> part = {static_cast<hsize_t>(steps), static_cast<hsize_t>(streams)};
    if (coordinates > 1) part.push_back(coordinates);
    return part;
  };
  const std::vector<hsize_t> single = size_of(1), pairs = size_of(2);
  History history;
  history.steps = steps;
  history.streams = streams;
  history.states = dataset("states", 2).read_integers(pairs);
  history.actions = dataset("actions", 1).read_integers(single);
  history.rewards = dataset("rewards", 1).read_reals(single);
  history.next_states = dataset("next_states", 2).read_integers(pairs);
  history.dones = dataset("dones", 1).read_booleans(single);
  if (H5Lexists(file_.get(), fmt::format("{}/compress_markers", task).c_str(), H5P_DEFAULT) > 0) {
    history.compress_markers = dataset("compress_markers", 1).read_integers(single);
  }
  return history;
}

}  // namespace adtrain

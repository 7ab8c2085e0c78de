#include "data/reader/HistoryReader.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/reader/Attribute.h"
#include "data/reader/HistoryDataset.h"

namespace adtrain {
namespace {

/// Longer attributes are not settings.
constexpr size_t kLongestSetting = 4096;

/// What iterating over attributes finds. HDF5 iterates, which no exception may leave.
struct FoundSettings {
  HistorySettings settings;
  std::string unreadable;  ///< the first setting that is neither a text nor a number, and what it is
};

herr_t add_setting(hid_t location, const char* name, const H5A_info_t*, void* state) {
  const Hdf5Handle attribute(H5Aopen(location, name, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return 0;
  auto& found = *static_cast<FoundSettings*>(state);
  const std::optional<std::string> value = attribute_text(attribute);
  if (value) {
    if (value->size() <= kLongestSetting) found.settings[name] = *value;
  } else if (found.unreadable.empty() && determines_the_values(name)) {
    found.unreadable = fmt::format("attribute {} holds {}", name, attribute_words(attribute));
  }
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
  FoundSettings found;
  hsize_t begin = 0;
  H5Aiterate2(file_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &begin, add_setting, &found);
  if (found.unreadable.empty()) return found.settings;
  throw DataError(fmt::format(
      "{}: {}; expected what the histories were collected with, as one text or one number: write it anew, as "
      "h5py does with file.attrs['horizon'] = '20', or remove the attribute",
      path_.string(), found.unreadable));
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

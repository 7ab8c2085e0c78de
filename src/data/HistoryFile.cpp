#include "data/HistoryFile.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/Hdf5.h"

namespace adtrain {
namespace {

template <class Number>
std::string tuple(const std::vector<Number>& numbers) {
  std::vector<std::string> parts;
  for (const Number number : numbers) parts.push_back(fmt::format("{}", number));
  return fmt::format("({})", join(parts, ", "));
}

/// A data set of a file, with its place for messages.
class Dataset {
 public:
  Dataset(const std::filesystem::path& path, const Hdf5Handle& file, const std::string& name)
      : place_(fmt::format("{}: data set {}", path.string(), name)),
        dataset_(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose) {
    if (!dataset_.valid()) {
      fail("is missing; expected states, actions, rewards, next_states and dones in every group");
    }
    const Hdf5Handle space(H5Dget_space(dataset_.get()), H5Sclose);
    shape_.resize(static_cast<size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
    H5Sget_simple_extent_dims(space.get(), shape_.data(), nullptr);
  }

  const std::vector<hsize_t>& shape() const { return shape_; }
  [[noreturn]] void fail(const std::string& what) const { throw DataError(place_ + " " + what); }

  void expect_shape(const std::vector<hsize_t>& expected) const {
    if (shape_ != expected) fail(fmt::format("has shape {}; expected {}", tuple(shape_), tuple(expected)));
  }

  /// Reads the leading `part` of every dimension, converted to what `memory_type` says.
  template <class Value>
  std::vector<Value> read(const std::vector<hsize_t>& part, hid_t memory_type) const {
    const Hdf5Handle file_space(H5Dget_space(dataset_.get()), H5Sclose);
    const Hdf5Handle memory_space(H5Screate_simple(static_cast<int>(part.size()), part.data(), nullptr),
                                  H5Sclose);
    const std::vector<hsize_t> origin(part.size(), 0);
    H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, origin.data(), nullptr, part.data(), nullptr);
    std::vector<Value> values(static_cast<size_t>(H5Sget_simple_extent_npoints(memory_space.get())));
    if (H5Dread(dataset_.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT,
                values.data()) < 0) {
      fail(fmt::format("cannot be read (HDF5 says: {}); the file may be damaged; fetch or collect it again",
                       hdf5_reason()));
    }
    return values;
  }

  std::vector<int32_t> read_integers(const std::vector<hsize_t>& part) const {
    if (type_class() != H5T_INTEGER)
      fail("does not hold whole numbers; expected an integer type, such as int32");
    return read<int32_t>(part, H5T_NATIVE_INT32);
  }
  std::vector<float> read_reals(const std::vector<hsize_t>& part) const {
    if (type_class() != H5T_INTEGER && type_class() != H5T_FLOAT) {
      fail("does not hold numbers; expected int32 or a floating-point type");
    }
    return read<float>(part, H5T_NATIVE_FLOAT);
  }
  /// h5py stores booleans as an enumeration over int8, which HDF5 converts to no number: its bytes are read
  /// as they are.
  std::vector<uint8_t> read_booleans(const std::vector<hsize_t>& part) const {
    const Hdf5Handle type(H5Dget_type(dataset_.get()), H5Tclose);
    const bool enumeration = H5Tget_class(type.get()) == H5T_ENUM && H5Tget_size(type.get()) == 1;
    if (!enumeration && type_class() != H5T_INTEGER) {
      fail("does not hold booleans; expected an enumeration over int8 {FALSE, TRUE}, or integers");
    }
    return read<uint8_t>(part, enumeration ? type.get() : H5T_NATIVE_UINT8);
  }

 private:
  H5T_class_t type_class() const {
    const Hdf5Handle type(H5Dget_type(dataset_.get()), H5Tclose);
    return H5Tget_class(type.get());
  }

  std::string place_;
  Hdf5Handle dataset_;
  std::vector<hsize_t> shape_;
};

/// Fails at the first value that is not `allowed`, naming its index.
template <class Value, class Predicate>
void check_values(const Dataset& dataset, const std::vector<Value>& values, const std::vector<hsize_t>& part,
                  const std::string& expected, Predicate allowed) {
  const auto wrong = std::find_if_not(values.begin(), values.end(), allowed);
  if (wrong == values.end()) return;
  std::vector<hsize_t> index(part.size());
  auto rest = static_cast<hsize_t>(wrong - values.begin());
  for (size_t dimension = part.size(); dimension-- > 0; rest /= part[dimension]) {
    index[dimension] = rest % part[dimension];
  }
  dataset.fail(fmt::format("holds {} at {}; expected {}", *wrong, tuple(index), expected));
}

}  // namespace

HistoryFile::HistoryFile(std::filesystem::path path) : path_(std::move(path)) {
  const Hdf5Turn turn;
  const Hdf5Handle file = open_hdf5(path_);
  H5G_info_t root{};
  H5Gget_info(file.get(), &root);
  tasks_ = static_cast<int64_t>(root.nlinks);
  for (int64_t task = 0; task < std::max<int64_t>(1, tasks_); ++task) {
    if (H5Lexists(file.get(), std::to_string(task).c_str(), H5P_DEFAULT) > 0) continue;
    throw DataError(
        fmt::format("{}: no group '{}' among the file's {}; expected one group a task, named 0 … n−1",
                    path_.string(), task, tasks_));
  }
  const Dataset actions(path_, file, "0/actions");
  if (actions.shape().size() != 2 || actions.shape()[0] == 0 || actions.shape()[1] == 0) {
    actions.fail(fmt::format("has shape {}; expected (steps, streams)", tuple(actions.shape())));
  }
  steps_ = static_cast<int64_t>(actions.shape()[0]);
  streams_ = static_cast<int64_t>(actions.shape()[1]);
}

History HistoryFile::read(int64_t task, int64_t steps, int64_t streams, const HistoryBounds& bounds) const {
  if (task < 0 || task >= tasks_ || steps > steps_ || streams > streams_) {
    throw DataError(
        fmt::format("{}: holds {} tasks of {} steps × {} streams; expected to find {} steps × {} streams of "
                    "task {}; lower train_source_timesteps or train_n_stream, or collect more",
                    path_.string(), tasks_, steps_, streams_, steps, streams, task));
  }
  const Hdf5Turn turn;
  const Hdf5Handle file = open_hdf5(path_);
  const auto count = [](int64_t number) { return static_cast<hsize_t>(number); };
  const std::vector<hsize_t> single = {count(steps), count(streams)},
                             pairs = {count(steps), count(streams), 2};
  const auto dataset = [&](const char* name, bool of_pairs) {
    Dataset found(path_, file, fmt::format("{}/{}", task, name));
    std::vector<hsize_t> expected = {count(steps_), count(streams_)};
    if (of_pairs) expected.push_back(2);
    found.expect_shape(expected);
    return found;
  };
  const auto integers = [&](const char* name, bool of_pairs, int64_t limit) {
    const Dataset found = dataset(name, of_pairs);
    const std::vector<hsize_t>& part = of_pairs ? pairs : single;
    std::vector<int32_t> values = found.read_integers(part);
    check_values(found, values, part, fmt::format("0 … {}", limit - 1),
                 [limit](int32_t value) { return value >= 0 && value < limit; });
    return values;
  };

  History history;
  history.steps = steps;
  history.streams = streams;
  history.states = integers("states", true, bounds.grid_size);
  history.actions = integers("actions", false, bounds.num_actions);
  history.next_states = integers("next_states", true, bounds.grid_size);
  const Dataset rewards = dataset("rewards", false);
  history.rewards = rewards.read_reals(single);
  check_values(rewards, history.rewards, single, "finite rewards",
               [](float reward) { return std::isfinite(reward); });
  const Dataset dones = dataset("dones", false);
  history.dones = dones.read_booleans(single);
  check_values(dones, history.dones, single, "0 or 1", [](uint8_t done) { return done <= 1; });
  if (H5Lexists(file.get(), fmt::format("{}/compress_markers", task).c_str(), H5P_DEFAULT) > 0) {
    history.compress_markers = integers("compress_markers", false, 3);
  }
  return history;
}

}  // namespace adtrain

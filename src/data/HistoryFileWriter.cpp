#include "data/HistoryFileWriter.h"

#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "data/CompressedChunks.h"
#include "data/Hdf5.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// Does something to the file system; what goes wrong is the user's to mend.
template <class Action>
void on_disk(const Action& action) {
  try {
    action();
  } catch (const fs::filesystem_error& error) {
    throw DataError(
        fmt::format("{}; expected to write learning histories there; make room, or set traj_dir to a folder "
                    "that can be written",
                    error.what()));
  }
}

[[noreturn]] void fail_writing(const fs::path& path) {
  throw DataError(
      fmt::format("{}: cannot be written (HDF5 says: {}); make room, or set traj_dir to a folder that can be "
                  "written",
                  path.string(), hdf5_reason()));
}

Hdf5Handle create_file(const fs::path& path) {
  Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  if (!file.valid()) fail_writing(path);
  return file;
}

/// The data sets of one task, without modification times, so that equal histories make equal files.
class GroupWriter {
 public:
  /// Compresses, where asked to, but calls HDF5 only in `write`.
  GroupWriter(const fs::path& path, const History& history, int compression)
      : path_(path),
        history_(history),
        compression_(compression),
        rewards_(history.rewards.begin(), history.rewards.end()) {
    add("states", true, history.states);
    add("actions", false, history.actions);
    add("rewards", false, rewards_);
    add("next_states", true, history.next_states);
    add("dones", false, history.dones);
    if (!history.compress_markers.empty()) add("compress_markers", false, history.compress_markers);
  }

  /// Only within an Hdf5Turn.
  void write(const Hdf5Handle& file, int64_t task) const {
    const Hdf5Handle group(
        H5Gcreate2(file.get(), std::to_string(task).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Gclose);
    if (!group.valid()) fail_writing(path_);
    for (const Dataset& dataset : datasets_) write(group, dataset);
  }

 private:
  struct Dataset {
    const char* name;
    bool of_pairs;
    size_t value_bytes;
    const void* values;
    std::optional<CompressedChunks> chunks;
  };

  template <class Value>
  void add(const char* name, bool of_pairs, const std::vector<Value>& values) {
    Dataset dataset{name, of_pairs, sizeof(Value), values.data(), std::nullopt};
    if (compression_ > 0) {
      const auto rows = static_cast<size_t>(history_.steps);
      dataset.chunks.emplace(values.data(), rows, values.size() / rows, sizeof(Value), compression_);
    }
    datasets_.push_back(std::move(dataset));
  }

  void write(const Hdf5Handle& group, const Dataset& dataset) const {
    const int dimensions = dataset.of_pairs ? 3 : 2;
    hsize_t shape[] = {static_cast<hsize_t>(history_.steps), static_cast<hsize_t>(history_.streams), 2};
    const Hdf5Handle space(H5Screate_simple(dimensions, shape, nullptr), H5Sclose);
    const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);
    if (dataset.chunks) {
      shape[0] = dataset.chunks->rows_of_chunk();
      H5Pset_chunk(creation.get(), dimensions, shape);
      H5Pset_shuffle(creation.get());
      H5Pset_deflate(creation.get(), static_cast<unsigned>(compression_));
    }
    const Hdf5Handle boolean = boolean_type();
    const bool flags = dataset.value_bytes == 1;
    const Hdf5Handle target(H5Dcreate2(group.get(), dataset.name, flags ? boolean.get() : H5T_STD_I32LE,
                                       space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                            H5Dclose);
    if (!target.valid()) fail_writing(path_);
    if (!dataset.chunks) {
      const hid_t type = flags ? boolean.get() : H5T_NATIVE_INT32;
      if (H5Dwrite(target.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, dataset.values) < 0)
        fail_writing(path_);
      return;
    }
    hsize_t offset[] = {0, 0, 0};
    for (const CompressedChunks::Bytes& chunk : dataset.chunks->chunks()) {
      if (H5Dwrite_chunk(target.get(), H5P_DEFAULT, 0, offset, chunk.size(), chunk.data()) < 0) {
        fail_writing(path_);
      }
      offset[0] += shape[0];
    }
  }

  /// As h5py has it.
  static Hdf5Handle boolean_type() {
    Hdf5Handle boolean(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
    const int8_t no = 0, yes = 1;
    H5Tenum_insert(boolean.get(), "FALSE", &no);
    H5Tenum_insert(boolean.get(), "TRUE", &yes);
    return boolean;
  }

  const fs::path& path_;
  const History& history_;
  int compression_;
  std::vector<int32_t> rewards_;  ///< as they are stored
  std::vector<Dataset> datasets_;
};

/// "n_steps was 20 and is 80" for each setting that differs.
std::vector<std::string> differences(const HistoryFileWriter::Settings& before,
                                     const HistoryFileWriter::Settings& now) {
  HistoryFileWriter::Settings names = before;
  names.insert(now.begin(), now.end());
  const auto value = [](const HistoryFileWriter::Settings& settings, const std::string& name) {
    const auto found = settings.find(name);
    return found == settings.end() ? std::string("absent") : found->second;
  };
  std::vector<std::string> list;
  for (const auto& [name, ignored] : names) {
    const std::string old_value = value(before, name), new_value = value(now, name);
    if (old_value != new_value)
      list.push_back(fmt::format("{} was {} and is {}", name, old_value, new_value));
  }
  return list;
}

void check_settings(const fs::path& partial, const HistoryFileWriter::Settings& settings) {
  HistoryFileWriter::Settings before;
  const fs::path file = partial / "settings.json";
  try {
    before = nlohmann::json::parse(read_file(file)).get<HistoryFileWriter::Settings>();
  } catch (const std::exception& error) {
    throw DataError(
        fmt::format("{}: not the settings of a collection ({}); remove the folder {} to collect anew",
                    file.string(), error.what(), partial.string()));
  }
  const std::vector<std::string> differing = differences(before, settings);
  if (differing.empty()) return;
  throw DataError(
      fmt::format("{}: a collection was begun there with other settings: {}; restore them to continue it, or "
                  "remove the folder to collect anew",
                  partial.string(), join(differing, ", ")));
}

/// Holds the folder for this process until the descriptor is closed.
int lock_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    throw DataError(fmt::format("{}: another process is collecting there; let it finish, or stop it first",
                                folder.string()));
  }
  return descriptor;  // a file system without locks lets everyone in
}

}  // namespace

HistoryFileWriter::HistoryFileWriter(fs::path path, int64_t tasks, const Settings& settings, int compression)
    : path_(std::move(path)),
      partial_(path_.string() + ".partial"),
      tasks_(tasks),
      compression_(compression) {
  if (fs::exists(path_)) {
    throw DataError(
        fmt::format("{}: exists already; histories are not overwritten; remove the file to collect it anew",
                    path_.string()));
  }
  Settings all = settings;
  all["tasks"] = std::to_string(tasks);
  on_disk([&] { fs::create_directories(partial_); });
  lock_ = lock_folder(partial_);
  try {
    if (fs::exists(partial_ / "settings.json")) {
      check_settings(partial_, all);
    } else {
      on_disk([&] { write_file_atomically(partial_ / "settings.json", nlohmann::json(all).dump(2) + "\n"); });
    }
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

HistoryFileWriter::~HistoryFileWriter() {
  ::close(lock_);
}

fs::path HistoryFileWriter::task_file(int64_t task) const {
  return partial_ / fmt::format("{}.hdf5", task);
}

std::vector<int64_t> HistoryFileWriter::missing() const {
  std::vector<int64_t> list;
  for (int64_t task = 0; task < tasks_; ++task) {
    if (!fs::exists(task_file(task))) list.push_back(task);
  }
  return list;
}

void HistoryFileWriter::write(int64_t task, const History& history) {
  const fs::path path = task_file(task), unfinished = path.string() + ".tmp";
  const GroupWriter group(unfinished, history, compression_);
  {
    const Hdf5Turn turn;
    Hdf5Handle file = create_file(unfinished);
    group.write(file, task);
    if (!file.close()) fail_writing(unfinished);
  }
  on_disk([&] {
    flush_to_disk(unfinished);
    rename_durably(unfinished, path);
  });
}

void HistoryFileWriter::finish() {
  const fs::path assembled = partial_ / "assembled.hdf5";
  {
    const Hdf5Turn turn;
    Hdf5Handle whole = create_file(assembled);
    for (int64_t task = 0; task < tasks_; ++task) {
      const Hdf5Handle part = open_hdf5(task_file(task));
      const std::string group = std::to_string(task);
      if (H5Ocopy(part.get(), group.c_str(), whole.get(), group.c_str(), H5P_DEFAULT, H5P_DEFAULT) < 0) {
        fail_writing(assembled);
      }
    }
    if (!whole.close()) fail_writing(assembled);
  }
  on_disk([&] {
    flush_to_disk(assembled);
    rename_durably(assembled, path_);
    fs::remove_all(partial_);
  });
}

}  // namespace adtrain

#include "data/HistoryFileWriter.h"

#include <memory>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "data/TaskImage.h"
#include "data/reader/ReaderProcess.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// What a file says of its own layout.
HistorySettings layout_attributes(HistoryVersion version) {
  if (version == HistoryVersion::kGrid) return {{"format_version", "1"}};
  return {{"adtrain-format", "2"}, {"axes", "stream,time"}};
}

/// Runs a file system operation, whose failure the user can fix.
template <class Action>
void on_disk(const Action& action) {
  try {
    action();
  } catch (const fs::filesystem_error& error) {
    throw DataError(
        fmt::format("{}; expected to write learning histories there; make room, or choose a folder that can "
                    "be written, by traj_dir, or --out of an import; finished tasks are kept, and the same "
                    "command continues",
                    error.what()));
  }
}

fs::path partial_folder(const fs::path& path) {
  return path.string() + ".partial";
}

void check_settings(const fs::path& partial, const HistorySettings& settings) {
  HistorySettings before;
  const fs::path file = partial / "settings.json";
  try {
    before = nlohmann::json::parse(read_file(file)).get<HistorySettings>();
  } catch (const std::exception& error) {
    throw DataError(fmt::format("{}: not the settings of histories ({}); remove the folder {} to begin anew",
                                file.string(), error.what(), partial.string()));
  }
  if (settings.contains("alg")) before.emplace("alg", "PPO");  // the only algorithm before settings named it
  const std::vector<std::string> differing = differences(before, settings);
  if (differing.empty()) return;
  throw DataError(
      fmt::format("{}: a file was begun there with other settings: {}; restore them to continue it, or "
                  "remove the folder to begin anew, as --overwrite does",
                  partial.string(), join(differing, ", ")));
}

/// Locks the folder for this process until the descriptor is closed.
int lock_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    throw DataError(fmt::format("{}: another process is writing there; let it finish, or stop it first",
                                folder.string()));
  }
  return descriptor;  // a file system without locks excludes nobody
}

/// Keeps the folder itself, on which the lock is held.
void remove_content(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) fs::remove_all(entry.path());
}

/// Writes a file completely or not at all; a partial file that a full disk leaves is removed.
void write_whole(const fs::path& path, const std::string& bytes) {
  const fs::path unfinished = path.string() + ".tmp";
  try {
    write_file(unfinished, bytes);
    rename_durably(unfinished, path);
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
}

}  // namespace

HistoryFileWriter::HistoryFileWriter(fs::path path, NumberRanges tasks, const Settings& settings,
                                     int compression, ExistingHistories existing, HistoryVersion version)
    : path_(std::move(path)),
      partial_(partial_folder(path_)),
      tasks_(std::move(tasks)),
      settings_(settings),
      compression_(compression),
      version_(version) {
  if (existing == ExistingHistories::kRefuse && fs::exists(path_)) {
    throw DataError(fmt::format(
        "{}: exists already; histories are not overwritten; remove the file, or replace it with --overwrite",
        path_.string()));
  }
  const int64_t count = tasks_.count();
  settings_["tasks"] = std::to_string(count);
  if (tasks_.largest() >= count) settings_[kTaskNumbers] = tasks_.text();
  on_disk([&] { fs::create_directories(partial_); });
  lock_ = lock_folder(partial_);
  try {
    open_folder(existing);
    remove_damaged_tasks();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

HistoryFileWriter::~HistoryFileWriter() {
  ::close(lock_);
}

void HistoryFileWriter::open_folder(ExistingHistories existing) {
  const fs::path settings_file = partial_ / "settings.json";
  if (fs::exists(settings_file)) {
    try {
      check_settings(partial_, settings_);
      return;
    } catch (const DataError&) {
      if (existing == ExistingHistories::kRefuse) throw;
      on_disk([&] { remove_content(partial_); });
    }
  }
  on_disk([&] { write_whole(settings_file, nlohmann::json(settings_).dump(2) + "\n"); });
}

void HistoryFileWriter::remove_damaged_tasks() {
  std::unique_ptr<ReaderProcess> reader;
  for (const int64_t task : tasks_.numbers()) {
    const fs::path file = task_file(task);
    if (!fs::exists(file)) continue;
    try {
      if (!reader) reader = std::make_unique<ReaderProcess>();
      reader->ask({{"do", version_ == HistoryVersion::kGrid ? "verify" : "verify_columns"},
                   {"path", file.string()},
                   {"task", task}},
                  file.string() + ": reading it");
      reader->answer();
    } catch (const DataError& error) {
      damages_.emplace_back(error.what());
      on_disk([&] { fs::remove(file); });
      reader.reset();  // it may have ended
    }
  }
}

fs::path HistoryFileWriter::task_file(const fs::path& path, int64_t task) {
  return partial_folder(path) / fmt::format("{}.hdf5", task);
}

std::vector<int64_t> HistoryFileWriter::missing() const {
  std::vector<int64_t> list;
  for (const int64_t task : tasks_.numbers()) {
    if (!fs::exists(task_file(task))) list.push_back(task);
  }
  return list;
}

void HistoryFileWriter::write(int64_t task, const History& history,
                              const std::vector<int32_t>& optimal_actions) {
  write_image(task, TaskImage(history, optimal_actions, compression_).bytes(task));
}

void HistoryFileWriter::write(int64_t task, const RecordedTask& recorded) {
  write_image(task, TaskImage(recorded, compression_).bytes(task));
}

void HistoryFileWriter::write_image(int64_t task, const std::string& image) {
  on_disk([&] { write_whole(task_file(task), image); });
}

/// Checks the free space first, as HDF5 does not survive a disk that fills up while it copies.
void HistoryFileWriter::check_room() const {
  uintmax_t needed = 0;
  for (const int64_t task : tasks_.numbers()) needed += fs::file_size(task_file(task));
  const uintmax_t available = fs::space(partial_).available;
  if (needed <= available) return;
  throw DataError(
      fmt::format("{}: the tasks are to be put together into one file of {}, and {} are free there; "
                  "expected room for it; make room",
                  partial_.string(), human_bytes(static_cast<double>(needed)),
                  human_bytes(static_cast<double>(available))));
}

void HistoryFileWriter::finish() {
  const fs::path assembled = partial_ / "assembled.hdf5";
  Settings attributes = settings_;
  attributes.merge(layout_attributes(version_));
  try {
    on_disk([&] { check_room(); });
    ReaderProcess reader;
    reader.ask({{"do", "assemble"},
                {"parts", partial_.string()},
                {"tasks", tasks_.text()},
                {"path", assembled.string()},
                {"settings", attributes}},
               assembled.string() + ": making it");
    for (nlohmann::json now = reader.answer(); !now.contains("done"); now = reader.answer()) {
      reader.doing(task_file(now.at("task")).string() + ": copying it");
    }
  } catch (const DataError& error) {
    std::error_code ignored;
    fs::remove(assembled, ignored);
    throw DataError(fmt::format("{}; finished tasks are kept in {}, and the same command continues",
                                error.what(), partial_.string()));
  }
  on_disk([&] {
    flush_to_disk(assembled);
    rename_durably(assembled, path_);
    fs::remove_all(partial_);
  });
}

}  // namespace adtrain

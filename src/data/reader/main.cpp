// adtrain-history-reader: reads history files for adtrain, through the HDF5 library, as a process that may
// die of a damaged file. adtrain starts it (ReaderProcess) with a socket as its standard input and asks:
//
//   {"do": "open", "path"}                          → {"tasks", "steps", "streams", "settings"}
//   {"do": "read", "task", "steps", "streams"}      → {"markers"}, then the columns of that part, one after
//   the other
//   {"do": "verify", "path", "task"}                → {}: the file of a single task is whole
//   {"do": "verify_columns", "path", "task"}        → {}: the same of version 2
//   {"do": "assemble", "parts", "tasks", "path", "settings"} → {"task"} before each task, {"done"} at the end
//
// For those who read the bytes themselves (Hdf5Catalog):
//
//   {"do": "names", "path", "group"}                → {"names"} some at a time, {"done"} at the end
//   {"do": "attributes", "path", "object"}          → {"attributes"}
//   {"do": "survey", "path", "groups", "dataset"}   → {"groups"}: the first, as many as fit
//   {"do": "groups_with", "path", "names", "datasets"} → {"names"}
//   {"do": "layouts", "path", "group"}              → {"datasets"}
//   {"do": "chunks", "path", "parts": [{"dataset", "first"}]} → {"parts"}
//
// An answer may always be {"error"} instead.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/reader/Hdf5Catalog.h"
#include "data/reader/HistoryAssembly.h"
#include "data/reader/HistoryReader.h"
#include "data/reader/Message.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kSocket = STDIN_FILENO;

/// Lowers, or raises again, a resource limit of this process.
void set_limit(__rlimit_resource resource, double wanted) {
  rlimit limit{};
  getrlimit(resource, &limit);
  limit.rlim_cur =
      wanted < static_cast<double>(limit.rlim_max) ? static_cast<rlim_t>(wanted) : limit.rlim_max;
  setrlimit(resource, &limit);
}

/// Sets memory and processor time for one request that handles `bytes` bytes, with a large margin: only a
/// damaged file takes more.
void allow_for(double bytes) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  constexpr double kSeconds = 10, kBytesOfASecond = 10e6;
  set_limit(RLIMIT_CPU, static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + kSeconds +
                            bytes / kBytesOfASecond);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory is terabytes
  constexpr double kGibibyte = 1 << 30;
  set_limit(RLIMIT_AS, kGibibyte + 8 * bytes);
#endif
}

double size_of(const fs::path& path) {
  std::error_code absent;
  const uintmax_t size = fs::file_size(path, absent);
  return absent ? 0 : static_cast<double>(size);
}

template <class Value>
bool send_column(const std::vector<Value>& values) {
  return send_bytes(kSocket, values.data(), values.size() * sizeof(Value));
}

/// Answers requests. Each returns whether there is still somebody to answer.
class Server {
 public:
  bool answer(const json& request) {
    const std::string what = request.at("do");
    if (what == "open") return open(request);
    if (what == "read") return read(request);
    if (what == "verify" || what == "verify_columns") return verify(request);
    if (what == "assemble") return assemble(request);
    return look_up(what, request);
  }

 private:
  bool open(const json& request) {
    const fs::path path = request.at("path").get<std::string>();
    allow_for(size_of(path));
    file_.emplace(path);
    file_bytes_ = size_of(path);
    return send_message(kSocket, {{"tasks", file_->tasks().text()},
                                  {"steps", file_->steps()},
                                  {"streams", file_->streams()},
                                  {"settings", file_->settings()}});
  }

  bool read(const json& request) {
    constexpr double kBytesOfATransition = 32;
    allow_for(file_bytes_ + kBytesOfATransition * static_cast<double>(file_->steps()) *
                                static_cast<double>(file_->streams()));
    const History part = file_->read(request.at("task"), request.at("steps"), request.at("streams"));
    return send_message(kSocket, {{"markers", !part.compress_markers.empty()}}) && send_column(part.states) &&
           send_column(part.actions) && send_column(part.rewards) && send_column(part.next_states) &&
           send_column(part.dones) && send_column(part.compress_markers);
  }

  static bool verify(const json& request) {
    const fs::path path = request.at("path").get<std::string>();
    constexpr double kMostOfAByte = 10;  // uncompressed
    allow_for(kMostOfAByte * size_of(path));
    const int64_t task = request.at("task");
    if (request.at("do") == "verify_columns") {
      verify_task_columns(path, task);
    } else {
      const HistoryReader file(path);
      file.read(task, file.steps(), file.streams());
      file.check_optimal_actions(task);
    }
    rehearse_assembly(path, task);
    return send_message(kSocket, json::object());
  }

  static bool assemble(const json& request) {
    const fs::path parts = request.at("parts").get<std::string>();
    double bytes = 0;
    const NumberRanges tasks = NumberRanges::parse(request.at("tasks").get<std::string>()).value();
    for (const int64_t task : tasks.numbers()) bytes += size_of(parts / fmt::format("{}.hdf5", task));
    allow_for(bytes);
    assemble_history_file(parts, tasks, request.at("path").get<std::string>(), request.at("settings"),
                          [](int64_t task) {
                            send_message(kSocket, {{"task", task}});
                          });
    return send_message(kSocket, {{"done", true}});
  }

  /// What a catalogue says takes little of a file, whatever the file's size.
  bool look_up(const std::string& what, const json& request) {
    constexpr double kMostOfAFile = 100e6;
    const std::string path = request.at("path");
    allow_for(std::min(kMostOfAFile, size_of(path)));
    if (what == "names") {
      bool heard = true;
      catalog_.names(path, request.at("group"), [&heard](const std::vector<std::string>& names) {
        heard = heard && send_message(kSocket, {{"names", names}});
      });
      return heard && send_message(kSocket, {{"done", true}});
    }
    if (what == "attributes")
      return send_message(kSocket, {{"attributes", catalog_.attributes(path, request.at("object"))}});
    if (what == "survey") {
      return send_message(kSocket,
                          {{"groups", catalog_.survey(path, request.at("groups"), request.at("dataset"))}});
    }
    if (what == "groups_with") {
      return send_message(
          kSocket, {{"names", catalog_.groups_with(path, request.at("names"), request.at("datasets"))}});
    }
    if (what == "layouts")
      return send_message(kSocket, {{"datasets", catalog_.layouts(path, request.at("group"))}});
    json parts = json::array();
    for (const json& part : request.at("parts"))
      parts.push_back(catalog_.chunks(path, part.at("dataset"), part.at("first")));
    return send_message(kSocket, {{"parts", parts}});
  }

  std::optional<HistoryReader> file_;
  double file_bytes_ = 0;
  Hdf5Catalog catalog_;
};

/// What a request asks about, for errors: the file, and the object in it.
std::string subject_of(const json& request) {
  const std::string path = request.value("path", std::string("the history file"));
  if (request.contains("groups"))  // a single group did not fit an answer, which is the first
    return fmt::format("{}: group {}", path, request.at("groups").at(0).get<std::string>());
  for (const char* key : {"object", "group"}) {
    if (request.contains(key)) return fmt::format("{}: group {}", path, request.at(key).get<std::string>());
  }
  return path;
}

void serve() {
  constexpr size_t kLongestReason = 16 * 1024;  // it may quote a damaged file
  const Hdf5Turn only_thread;
  Server server;
  while (const std::optional<json> request = receive_message(kSocket)) {
    json error;
    try {
      if (!server.answer(*request)) return;
      continue;
    } catch (const std::bad_alloc&) {
      const std::string path = request->value("path", std::string("the history file"));
      error = {{"error", path +
                             ": asks for more memory than its size explains; the file is damaged; fetch or "
                             "collect it again"}};
    } catch (const MessageTooLong& found) {
      error = {{"error", fmt::format("{}: found names and attributes of {}: shorten them, or remove some",
                                     subject_of(*request), found.what())}};
    } catch (const std::exception& caught) {
      error = {{"error", abridged(caught.what(), kLongestReason)}};
    }
    if (!send_message(kSocket, error)) return;
  }
}

}  // namespace
}  // namespace adtrain

int main() {
  struct stat input {};
  if (fstat(STDIN_FILENO, &input) != 0 || !S_ISSOCK(input.st_mode)) {
    std::fputs(
        "adtrain-history-reader: a part of adtrain, which starts it to read history files; see adtrain "
        "--help\n",
        stderr);
    return static_cast<int>(adtrain::ExitCode::kUsage);
  }
  close_range(STDERR_FILENO + 1, ~0U,
              0);  // what the process that started it has open is not this one's affair
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  adtrain::serve();
  _exit(0);  // skips HDF5's own termination, which may crash after a damaged file
}

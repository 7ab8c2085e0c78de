#include "base/ProcessTable.h"

#include <charconv>
#include <filesystem>
#include <sstream>
#include <utility>

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/File.h"

namespace adtrain {
namespace {

/// "" where it cannot be read, for example because the process ends meanwhile.
std::string text_of(int64_t process, const char* name) {
  try {
    return read_file(fmt::format("/proc/{}/{}", process, name));
  } catch (const std::filesystem::filesystem_error&) {
    return "";
  }
}

/// The folder's process id; 0 where it is not a process's.
int64_t process_of(const char* folder) {
  const std::string name = folder;
  int64_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  return error == std::errc() && end == name.data() + name.size() ? process : 0;
}

}  // namespace

std::optional<ProcessStatus> status_of_process(int64_t process) {
  const std::string text = text_of(process, "stat");
  const size_t name_end = text.rfind(')');  // the name before it may hold any character, also a bracket
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStatus status;
  fields >> status.state >> status.parent;
  constexpr int kBetweenParentAndStart = 17;
  std::string skipped;
  for (int field = 0; field < kBetweenParentAndStart; ++field) fields >> skipped;
  fields >> status.started;
  return fields ? std::optional(status) : std::nullopt;
}

std::map<std::string, std::string> environment_of_process(int64_t process) {
  std::istringstream variables(text_of(process, "environ"));
  std::map<std::string, std::string> environment;
  for (std::string variable; std::getline(variables, variable, '\0');) {
    const size_t equals = variable.find('=');
    if (equals != std::string::npos) environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return environment;
}

std::vector<int64_t> processes_of_this_user() {
  std::vector<int64_t> processes;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return processes;
  while (const dirent* entry = readdir(folder)) {
    const int64_t process = process_of(entry->d_name);
    struct stat owner {};
    if (process > 0 && fstatat(dirfd(folder), entry->d_name, &owner, 0) == 0 && owner.st_uid == geteuid()) {
      processes.push_back(process);
    }
  }
  closedir(folder);
  return processes;
}

}  // namespace adtrain

#include "run/LockFile.h"

#include <cerrno>
#include <ctime>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/File.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string moment_text(double unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  }
  return text;
}

}  // namespace

std::string LockHolder::text() const {
  if (process.process == 0) return "a process that left no readable name";
  return fmt::format("process {} on host {} ({}, {} rank{}{}), since {}", process.process, process.host,
                     launch.launcher, world_size, world_size == 1 ? "" : "s",
                     launch.id.empty() ? "" : ", job " + launch.id, moment_text(since));
}

std::string LockHolder::json_text() const {
  const json holder = {{"process", process},
                       {"launch", launch},
                       {"world_size", world_size},
                       {"since", since},
                       {"token", token}};
  return holder.dump(2) + "\n";
}

std::optional<LockHolder> read_holder(const fs::path& file) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const fs::filesystem_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) return std::nullopt;
  }
  LockHolder holder;
  try {
    const json parsed = json::parse(text);
    parsed.at("token").get_to(holder.token);
    parsed.at("process").get_to(holder.process);
    parsed.at("launch").get_to(holder.launch);
    parsed.at("world_size").get_to(holder.world_size);
    parsed.at("since").get_to(holder.since);
  } catch (const json::exception&) {
    holder = {};
  }
  // The token becomes part of a file's name.
  if (holder.token.empty() || holder.token.find('/') != std::string::npos) holder.token = "unreadable";
  return holder;
}

/// Opening the file first makes a network file system query its server.
std::optional<double> modified_seconds(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  struct stat found {};
  const bool known = fstat(descriptor, &found) == 0;
  ::close(descriptor);
  if (!known) return std::nullopt;
  return static_cast<double>(found.st_mtim.tv_sec) + 1e-9 * static_cast<double>(found.st_mtim.tv_nsec);
}

void touch(const fs::path& file) {
  utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // on failure, waiting processes see the file age
}

bool link_exclusively(const fs::path& existing, const fs::path& name) {
  if (::link(existing.c_str(), name.c_str()) == 0) return true;
  const int reason = errno;
  // A network file system may have made the link and lost the answer.
  std::error_code unknown;
  if (reason == EEXIST) return fs::equivalent(existing, name, unknown);
  if (reason == EPERM || reason == ENOTSUP || reason == ENOSYS || reason == EMLINK) {
    // On a file system without hard links, exclusive creation of a file is the next best.
    const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor >= 0) {
      ::close(descriptor);
      write_file(name, read_file(existing));
      return true;
    }
    if (errno == EEXIST) return false;
  }
  throw fs::filesystem_error("cannot lock", name, std::error_code(reason, std::generic_category()));
}

}  // namespace adtrain

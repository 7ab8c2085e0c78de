#include "run/LaunchIdentity.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/File.h"
#include "base/Host.h"
#include "base/ProcessTable.h"
#include "collectives/Agreement.h"
#include "launch/LocalRanks.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// "" where it cannot be read.
std::string text_of(const fs::path& file) {
  try {
    return read_file(file);
  } catch (const fs::filesystem_error&) {
    return "";
  }
}

std::string without_line_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// The process that started this rank; its parent where that is unknown.
ProcessIdentity find_agent() {
  return ProcessIdentity::of(LocalRanks(LaunchContext::detect()).launcher().value_or(getppid()));
}

/// Cached at the first call: a launcher may end before its ranks do.
const ProcessIdentity& agent_of_this_process() {
  static const ProcessIdentity agent = find_agent();
  return agent;
}

}  // namespace

ProcessIdentity ProcessIdentity::of(int64_t process) {
  std::error_code unknown;
  const auto status = status_of_process(process);
  return {.host = host_name(),
          .boot = without_line_end(text_of("/proc/sys/kernel/random/boot_id")),
          .pid_namespace = fs::read_symlink("/proc/self/ns/pid", unknown).string(),
          .process = process,
          .started = status ? status->started : 0};
}

ProcessIdentity ProcessIdentity::of_this_process() {
  return of(getpid());
}

ProcessIdentity::State ProcessIdentity::state() const {
  const ProcessIdentity now = of(process);
  if (host != now.host || boot != now.boot || pid_namespace != now.pid_namespace || process <= 0) {
    return State::kUnknown;
  }
  if (kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return State::kGone;
  const auto status = status_of_process(process);
  if (!status) return State::kAlive;  // a process hidden by another user
  return status->ended() || status->started != started ? State::kGone : State::kAlive;
}

LaunchIdentity LaunchIdentity::of_this_launch(const LaunchContext& context, Communicator& communicator) {
  LaunchIdentity launch;
  launch.launcher = launcher_name(context.launcher);
  const std::string job = process_environment("SLURM_JOB_ID").value_or("");
  launch.id = context.launcher == Launcher::kSlurm ? job : context.run_id;
  const nlohmann::json mine = agent_of_this_process();
  std::set<std::string> seen;
  for (const std::string& agent : gather_texts(communicator, mine.dump())) {
    if (seen.insert(agent).second) launch.agents.push_back(nlohmann::json::parse(agent));
  }
  return launch;
}

bool LaunchIdentity::same_launch(const LaunchIdentity& other) const {
  if (id.empty() || launcher != other.launcher || id != other.id) return false;
  if (launcher == launcher_name(Launcher::kSlurm)) return true;
  return std::ranges::any_of(agents, [&](const ProcessIdentity& agent) {
    return std::ranges::find(other.agents, agent) != other.agents.end();
  });
}

bool LaunchIdentity::started_this_process() const {
  return std::ranges::find(agents, agent_of_this_process()) != agents.end();
}

void to_json(nlohmann::json& json, const ProcessIdentity& identity) {
  json = {{"host", identity.host},
          {"boot", identity.boot},
          {"pid_namespace", identity.pid_namespace},
          {"process", identity.process},
          {"started", identity.started}};
}

void from_json(const nlohmann::json& json, ProcessIdentity& identity) {
  json.at("host").get_to(identity.host);
  json.at("boot").get_to(identity.boot);
  json.at("pid_namespace").get_to(identity.pid_namespace);
  json.at("process").get_to(identity.process);
  json.at("started").get_to(identity.started);
}

void to_json(nlohmann::json& json, const LaunchIdentity& identity) {
  json = {{"launcher", identity.launcher}, {"id", identity.id}, {"agents", identity.agents}};
}

void from_json(const nlohmann::json& json, LaunchIdentity& identity) {
  json.at("launcher").get_to(identity.launcher);
  json.at("id").get_to(identity.id);
  json.at("agents").get_to(identity.agents);
}

}  // namespace adtrain

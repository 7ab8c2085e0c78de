#include "run/throughput/RowProcesses.h"

#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/File.h"
#include "base/Text.h"
#include "base/Words.h"
#include "run/sweep/SweepSlots.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr double kLookSeconds = 0.05;
constexpr size_t kMostOfError = 600;

std::string error_in(const fs::path& log) {
  try {
    return abridged(error_in_log(read_file(log)), kMostOfError);
  } catch (const fs::filesystem_error&) {
    return "";
  }
}

/// "" where there is none.
std::string last_line(const fs::path& log) {
  std::string last;
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!trimmed(line).empty()) last = line;
  }
  return abridged(last, kMostOfError);
}

}  // namespace

std::string error_in_log(const std::string& text) {
  const std::string own = "adtrain: ", in_block = "   error       ";
  std::string error;
  bool goes_on = false;  // lines behind the first one belong to it
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with(own), of_block = line.starts_with(in_block);
    if (begins || of_block) {
      error = line.substr(begins ? own.size() : in_block.size());
    } else if (goes_on && line.starts_with("  ")) {
      error += " " + trimmed(line);
    }
    goes_on = begins || (goes_on && line.starts_with("  "));
  }
  return error;
}

void RowProcesses::score(const ThroughputRow& row, int64_t number, const std::string& name,
                         RankProcess::Plan& plan) const {
  if (row.ranks > 1) {
    plan.arguments = {"launch", "--nproc", std::to_string(row.ranks), "--logs",
                      (settings_.folder / "logs" / (name + "-ranks")).string()};
  }
  plan.arguments.insert(plan.arguments.end(), settings_.scored.begin(), settings_.scored.end());
  for (const std::string& setting : row.settings)
    plan.arguments.insert(plan.arguments.end(), {"--set", setting});
  const std::string folder = nlohmann::json(work().string()).dump();  // YAML, whatever the path contains
  plan.arguments.insert(plan.arguments.end(), {"--set", "score_output_dir=" + folder, "--measure",
                                               fmt::format("{}", settings_.seconds)});
  if (row.processes > 1)
    plan.arguments.insert(plan.arguments.end(), {"--shard", fmt::format("{}/{}", number, row.processes)});
}

RowProcesses::Started RowProcesses::started(const ThroughputRow& row, int64_t number,
                                            const StartLine& line) const {
  const std::string name = row.processes == 1 ? row.key : fmt::format("{}-{}", row.key, number);
  RankProcess::Plan plan;
  plan.rank = number;
  if (ThroughputRow::is_peer(row)) {
    fs::create_directories(work());
    plan.program = "/usr/bin/env";  // looks for Python
    plan.name = "env";
    plan.arguments = settings_.peers.command(row, settings_.seconds, ScoringSpeed::file(work()));
  } else {
    score(row, number, name, plan);
  }
  plan.environment = environment_showing(row.gpus_of(number));
  if (row.processes > 1) {
    plan.environment.push_back(line.variable());
    plan.inherited = line.descriptors();
  }
  plan.log = settings_.folder / "logs" / (name + ".log");
  plan.blocked_signals = signals_.blocked_before();
  fs::remove(*plan.log);
  return {number, *plan.log, RankProcess(plan)};
}

void RowProcesses::answer(int signal, const std::list<Started>& running) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) {
    for (const Started& each : running) each.process.send(SIGSTOP);
    kill(getpid(), SIGSTOP);
    for (const Started& each : running) each.process.send(SIGCONT);
    return;
  }
  stopping_ = true;
  for (const Started& each : running) each.process.send(signal == SIGHUP ? SIGTERM : signal);
}

RowProcesses::End RowProcesses::failed(const ThroughputRow& row, const RankEnd& left,
                                       const fs::path& log) const {
  constexpr int kNotFound = 127, kNotExecutable = 126;  // of env, as of shells
  const bool is_peer = ThroughputRow::is_peer(row);
  if (is_peer && (left.exit_code == kNotFound || left.exit_code == kNotExecutable)) {
    return {.because = fmt::format("--python: found '{}', which cannot be started ({}); expected a Python "
                                   "that has the package torch",
                                   settings_.peers.python(), last_line(log)),
            .code = ExitCode::kUsage};
  }
  End end{.because = error_in(log), .code = static_cast<ExitCode>(left.exit_code)};
  end.is_missing = is_peer && end.code == ExitCode::kEnvironment;
  if (end.because.empty() && is_peer) end.because = last_line(log);  // Python's error
  if (end.because.empty()) end.because = left.text();
  if (end.code != ExitCode::kUsage && !end.is_missing) end.because += "; see " + log.string();
  return end;
}

RowProcesses::End RowProcesses::measure(const ThroughputRow& row) {
  End end;
  std::list<Started> running;
  try {
    fs::remove_all(work());
    StartLine line;
    for (int64_t number = 0; number < row.processes; ++number) running.push_back(started(row, number, line));
    for (int64_t ready = 0; !running.empty();) {
      if (const std::optional<int> signal = signals_.next(kLookSeconds)) answer(*signal, running);
      ready += line.newly_ready();
      if (ready == row.processes) line.go();
      for (auto each = running.begin(); each != running.end();) {
        const std::optional<RankEnd> left = each->process.take_end();
        if (left && left->exit_code != 0 && end.because.empty()) {
          end = failed(row, *left, each->log);
          for (const Started& other : running) other.process.send(SIGTERM);
        }
        each = left ? running.erase(each) : std::next(each);
      }
    }
    if (end.because.empty()) end.speeds = speeds(row);
  } catch (const Error& error) {
    end.because = error.what();
    end.code = error.exit_code();
  } catch (const fs::filesystem_error& error) {
    end.because = error.what();
    end.code = ExitCode::kEnvironment;
  }
  running.clear();  // ends what still writes there
  std::error_code left_there;
  fs::remove_all(work(), left_there);
  return end;
}

std::vector<ScoringSpeed> RowProcesses::speeds(const ThroughputRow& row) const {
  if (row.processes == 1) return {ScoringSpeed::read(work())};
  std::vector<ScoringSpeed> speeds;
  for (int64_t number = 0; number < row.processes; ++number)
    speeds.push_back(ScoringSpeed::read(work() / fmt::format("part-{}-of-{}", number, row.processes)));
  return speeds;
}

}  // namespace adtrain

#include "distributed/failure/Failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/Host.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr const char* kRule = "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━";

constexpr const char* kAdviceForMemory =
    "halve the micro-batch: double gradient_accumulation_steps at the same global_batch_size, or halve "
    "train_batch_size; mixed_precision: bf16 takes about half of the memory; then --resume";

std::string advice_for(ExitCode code) {
  switch (code) {
    case ExitCode::kUsage:
      return "correct the configuration as the error says, and start again";
    case ExitCode::kEnvironment:
      return "correct the setting or the host that the error names, and start again";
    case ExitCode::kData:
      return "mend the histories as the error says, and start again with --resume";
    case ExitCode::kCheckpoint:
      return "choose a checkpoint that verifies, or make room for one, and start again with --resume";
    case ExitCode::kNonFinite:
      return "lower lr or look for bad values in the histories, then start again with --resume";
    default:
      return "report it with the output of `adtrain env`; --resume continues from the newest checkpoint";
  }
}

}  // namespace

RankIdentity RankIdentity::of_this_process(int64_t rank, int64_t world_size) {
  return {rank, world_size, host_name(), getpid()};
}

Failure Failure::of(const std::exception& error, const RankIdentity& who) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const ExitCode code = known != nullptr ? known->exit_code() : ExitCode::kUnexpected;
  const bool out_of_memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  return {who, Activity::of_this_process().now(), code, error.what(),
          out_of_memory ? kAdviceForMemory : advice_for(code)};
}

Failure Failure::gone(const RankIdentity& who, const Doing& doing) {
  return {
      who, doing, ExitCode::kPeerLost, "it ended without a word: killed, crashed or left early",
      fmt::format("look at the last lines of rank {} and at the system log of {} (out of memory, a crash, a "
                  "signal); --resume continues from the newest checkpoint",
                  who.rank, who.host)};
}

Failure Failure::silent(const RankIdentity& who, const Doing& doing, double seconds) {
  return {
      who, doing, ExitCode::kPeerLost,
      fmt::format("it has not been heard of for {}: its process is stopped, or its host or network is down",
                  human_duration(seconds)),
      fmt::format("look whether process {} on {} is stopped and whether the host answers; --resume continues "
                  "from the newest checkpoint",
                  who.process, who.host)};
}

Failure Failure::elsewhere(const RankIdentity& who, const Doing& doing) {
  return {
      who, doing, ExitCode::kPeerLost,
      "the others waited for it in vain: it is alive and does something else",
      fmt::format("see what process {} on {} does (`gdb -p`, `top`, a slow disk); if it is only slow, raise "
                  "collective_timeout_seconds",
                  who.process, who.host)};
}

std::string Failure::block() const {
  std::string text = fmt::format("━━ adtrain ended: rank {} of {} failed first {}\n", who.rank,
                                 who.world_size, std::string(kRule).substr(0, 3 * 26));
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("   {:<11} {}\n", name, value);
  };
  line("rank", fmt::format("{} of {}, process {} on {}", who.rank, who.world_size, who.process, who.host));
  line("was", doing.text());
  line("error", error);
  if (code != ExitCode::kPeerLost) line("exit code", fmt::format("{}", static_cast<int>(code)));
  line("what to do", advice);
  return text + kRule + "\n";
}

void to_json(nlohmann::json& json, const RankIdentity& who) {
  json = {{"rank", who.rank}, {"world_size", who.world_size}, {"host", who.host}, {"process", who.process}};
}

void from_json(const nlohmann::json& json, RankIdentity& who) {
  json.at("rank").get_to(who.rank);
  json.at("world_size").get_to(who.world_size);
  json.at("host").get_to(who.host);
  json.at("process").get_to(who.process);
}

void to_json(nlohmann::json& json, const Doing& doing) {
  json = {{"phase", doing.phase},
          {"step", doing.step.value_or(-1)},
          {"waits_in", doing.waits_in},
          {"seconds", doing.seconds}};
}

void from_json(const nlohmann::json& json, Doing& doing) {
  const auto step = json.at("step").get<int64_t>();
  doing.step = step < 0 ? std::nullopt : std::optional(step);
  json.at("phase").get_to(doing.phase);
  json.at("waits_in").get_to(doing.waits_in);
  json.at("seconds").get_to(doing.seconds);
}

void to_json(nlohmann::json& json, const Failure& failure) {
  json = {{"who", failure.who},
          {"doing", failure.doing},
          {"code", static_cast<int>(failure.code)},
          {"error", failure.error},
          {"advice", failure.advice}};
}

void from_json(const nlohmann::json& json, Failure& failure) {
  json.at("who").get_to(failure.who);
  json.at("doing").get_to(failure.doing);
  failure.code = static_cast<ExitCode>(json.at("code").get<int>());
  json.at("error").get_to(failure.error);
  json.at("advice").get_to(failure.advice);
}

}  // namespace adtrain

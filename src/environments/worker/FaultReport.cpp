#include "environments/worker/FaultReport.h"

#include <fmt/format.h>

#include "base/Text.h"
#include "environments/worker/WorkerFault.h"

namespace adtrain {
namespace {

std::string text_of(const nlohmann::json& fault, const char* key) {
  const auto found = fault.find(key);
  return found != fault.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string without_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

/// "a wrong reward", "wrong rewards".
std::string wrong(const std::string& what) {
  const bool is_plural = what.ends_with('s') || what.ends_with('S');
  return (is_plural ? "wrong " : "a wrong ") + what;
}

std::string nearest_of(const nlohmann::json& fault) {
  const std::string nearest = text_of(fault, "nearest");
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace

void throw_fault(const nlohmann::json& fault, const std::string& env_worker, const WhereIs& where) {
  const std::string kind = text_of(fault, "kind"), doing = text_of(fault, "doing");
  std::string place;
  if (where) {
    const bool is_known = fault.contains("place") && fault["place"].is_number_integer();
    place = " in " + where(is_known ? std::optional<int64_t>(fault["place"]) : std::nullopt);
  }
  if (kind == "installation") throw WorkerFault(ExitCode::kEnvironment, text_of(fault, "message"));
  if (kind == "name") {
    throw WorkerFault(
        ExitCode::kUsage,
        fmt::format("env_worker: found {}, and {} has no function '{}'; expected make_env(task, seed) or "
                    "make_vec_env(tasks, seeds) there{}",
                    env_worker, text_of(fault, "file"), text_of(fault, "name"), nearest_of(fault)));
  }
  if (kind == "value") {
    throw WorkerFault(ExitCode::kData, fmt::format("{}: {} gave {}{}: found {}; expected {}", env_worker,
                                                   doing, wrong(text_of(fault, "what")), place,
                                                   text_of(fault, "found"), text_of(fault, "expected")));
  }
  throw WorkerFault(ExitCode::kUsage, fmt::format("{}: {} failed{}: {}\n{}", env_worker, doing, place,
                                                  abridged(text_of(fault, "error"), 500),
                                                  without_end(text_of(fault, "traceback"))));
}

}  // namespace adtrain

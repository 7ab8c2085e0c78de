#include <array>
#include <ctime>
#include <optional>

#include <fmt/format.h>

#include "base/StandardStreams.h"
#include "base/Text.h"
#include "checkpoint/Manifest.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "run/checkpoints/CheckpointTarget.h"

namespace adtrain {
namespace {

using nlohmann::json;

json entry_of(const std::filesystem::path& checkpoint, const std::optional<BestCheckpoint>& best) {
  json entry = {{"path", checkpoint.string()}};
  try {
    const Manifest manifest = Manifest::read(checkpoint);
    uint64_t bytes = 0;
    for (const auto& [name, file] : manifest.files) bytes += file.bytes;
    entry["step"] = manifest.step;
    entry["created"] = manifest.created;
    entry["bytes"] = bytes;
    entry["configuration"] = summary_of_configuration(configuration_in(manifest.state));
    if (best && best->step == manifest.step) entry["best_held_out_return"] = best->held_out_return;
  } catch (const CheckpointError& error) {
    entry["fault"] = error.what();
  }
  return entry;
}

std::string date_text(double unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "at an unknown time";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts)};
}

std::string line_of(const json& entry) {
  const auto path = entry.at("path").get<std::string>();
  if (entry.contains("fault"))
    return fmt::format("{}  UNUSABLE: {}\n", path, entry["fault"].get<std::string>());
  const std::string best =
      entry.contains("best_held_out_return")
          ? fmt::format("  BEST: held-out return {:.2f}", entry["best_held_out_return"].get<double>())
          : "";
  return fmt::format("{}  step {}  {}  {}  {}{}\n", path, entry.at("step").get<int64_t>(),
                     date_text(entry.at("created").get<double>()),
                     human_bytes(entry.at("bytes").get<double>()),
                     entry.at("configuration").get<std::string>(), best);
}

}  // namespace

ExitCode list_checkpoints(const std::filesystem::path& target, bool as_json) {
  json list = json::array();
  const CheckpointTarget found(target);
  const std::optional<BestCheckpoint> best = found.best();
  for (const auto& checkpoint : found.checkpoints()) list.push_back(entry_of(checkpoint, best));
  std::string text;
  for (const json& entry : list) text += line_of(entry);
  print_answer(as_json ? list.dump(2) + "\n" : text);
  return ExitCode::kDone;
}

}  // namespace adtrain

#include <fmt/format.h>

#include "base/StandardStreams.h"
#include "checkpoint/TensorStatistics.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "run/checkpoints/CheckpointTarget.h"

namespace adtrain {
namespace {

using nlohmann::json;

json verdict_on(const std::filesystem::path& checkpoint) {
  json verdict = {{"path", checkpoint.string()}, {"usable", true}};
  try {
    const Snapshot snapshot = CheckpointStore::load(checkpoint);
    verdict["step"] = snapshot.step;
    verdict["tensors"] = snapshot.model.size() + snapshot.optimizer.size();
    for (const auto* tensors : {&snapshot.model, &snapshot.optimizer}) expect_finite(*tensors, /*whose=*/"");
  } catch (const CheckpointError& error) {
    verdict["usable"] = false;
    verdict["fault"] = error.what();
  }
  return verdict;
}

std::string line_of(const json& verdict) {
  const auto path = verdict.at("path").get<std::string>();
  if (!verdict.at("usable").get<bool>())
    return fmt::format("{}  UNUSABLE: {}\n", path, verdict.at("fault").get<std::string>());
  return fmt::format("{}  step {}: checksums match, {} tensors, all finite\n", path,
                     verdict.at("step").get<int64_t>(), verdict.at("tensors").get<int64_t>());
}

}  // namespace

ExitCode verify_checkpoints(const std::filesystem::path& target, bool as_json) {
  json verdicts = json::array();
  std::string text;
  bool all_usable = true;
  const CheckpointTarget found(target);
  for (const auto& checkpoint : found.checkpoints()) {
    verdicts.push_back(verdict_on(checkpoint));
    text += line_of(verdicts.back());
    all_usable = all_usable && verdicts.back().at("usable").get<bool>();
  }
  print_answer(as_json ? verdicts.dump(2) + "\n" : text);
  return all_usable ? ExitCode::kDone : ExitCode::kCheckpoint;
}

}  // namespace adtrain

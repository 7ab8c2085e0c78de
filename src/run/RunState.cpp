#include "run/RunState.h"

#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "base/File.h"

namespace adtrain {

using nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(RunState::Stage, {{RunState::Stage::kTraining, "training"},
                                               {RunState::Stage::kStopped, "stopped"},
                                               {RunState::Stage::kFinished, "finished"}})

void RunState::write(const std::filesystem::path& file) const {
  const json text = {
      {"stage", stage}, {"step", step}, {"since", unix_seconds()}, {"launch", launch}, {"attempt", attempt}};
  write_file_atomically(file, text.dump(2) + "\n");
}

std::optional<RunState> RunState::read(const std::filesystem::path& file) {
  try {
    const json text = json::parse(read_file(file));
    RunState state;
    text.at("stage").get_to(state.stage);
    text.at("step").get_to(state.step);
    text.at("launch").get_to(state.launch);
    text.at("attempt").get_to(state.attempt);
    return state;
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const std::filesystem::filesystem_error&) {
    return std::nullopt;
  }
}

}  // namespace adtrain

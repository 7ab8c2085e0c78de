#include "run/TrainingResult.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/StandardStreams.h"
#include "checkpoint/CheckpointStore.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The newest records of training, of the held-out loss and of in-context returns in metrics.jsonl.
struct NewestMetrics {
  Json training, held_out, returns;

  explicit NewestMetrics(const fs::path& file) {
    constexpr std::streamoff kTail = 1 << 20;  // many reports, however many ranks there are
    std::ifstream lines(file, std::ios::binary | std::ios::ate);
    if (!lines) return;
    lines.seekg(std::max<std::streamoff>(0, lines.tellg() - kTail));
    for (std::string line; std::getline(lines, line);) {
      Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!record.is_object()) continue;  // cut off, at either end
      if (Json* const place = place_of(record)) *place = std::move(record);
    }
  }

 private:
  /// Null where the record is none of these.
  Json* place_of(const Json& record) {
    if (record.contains("loss")) return &training;
    if (record.contains("test_loss")) return &held_out;
    return record.contains("test_return") || record.contains("train_return") ? &returns : nullptr;
  }
};

Json paths_of(const RunFolder& folder, const fs::path& checkpoint) {
  Json paths = {{"run", folder.root.string()}};
  const auto add = [&paths](const char* name, const fs::path& path) {
    std::error_code unknown;
    if (fs::exists(path, unknown)) paths[name] = path.string();
  };
  add("configuration", folder.config());
  add("record", folder.record());
  add("metrics", folder.metrics());
  add("tensorboard", folder.tensorboard());
  add("loss_curve", folder.loss_curve().string() + ".png");
  if (!checkpoint.empty()) add("checkpoint", checkpoint);
  add("failure", folder.failure());
  return paths;
}

}  // namespace

void TrainingResult::is_of(const RunConfig& config) {
  folder_ = config.folder();
  steps_ = config.training.train_timesteps;
}

void TrainingResult::ended(Trainer::End how, ExitCode code, int64_t step) {
  const bool finished = how == Trainer::End::kFinished;
  print({{"result", finished ? "finished" : "stopped"},
         {"exit_code", static_cast<int>(code)},
         {"reason",
          finished ? "all steps are done" : "asked to stop; the same command with --resume continues"},
         {"step", step}});
}

void TrainingResult::failed(const Failure& failure) {
  Json named = {{"rank", failure.who.rank},
                {"ranks", failure.who.world_size},
                {"host", failure.who.host},
                {"was", failure.doing.text()},
                {"what_to_do", failure.advice}};
  if (failure.who.rank == RankIdentity::kNobody)
    for (const char* const of_one : {"rank", "host", "was"}) named.erase(of_one);
  Json result = {{"result", "failed"},
                 {"exit_code", static_cast<int>(failure.code)},
                 {"reason", failure.error},
                 {"failure", std::move(named)}};
  if (failure.doing.step) result["step"] = *failure.doing.step;
  print_leniently(std::move(result));
}

void TrainingResult::failed(const std::exception& error) {
  const ErrorMeaning meaning = meaning_of(error);
  print_leniently(
      {{"result", "failed"},
       {"exit_code", static_cast<int>(meaning.code)},
       {"reason", meaning.advice.empty() ? meaning.error : meaning.error + "; " + meaning.advice}});
}

void TrainingResult::print(Json result) {
  if (printed_.exchange(true)) return;
  if (folder_) {
    result["run"] = folder_->root.filename().string();
    result["steps"] = steps_;
  }
  if (claimed_) {
    const NewestMetrics newest(folder_->metrics());
    const CheckpointStore checkpoints(folder_->checkpoints(), /*keep=*/2);
    const std::vector<int64_t> saved = checkpoints.steps_as_named();
    if (!saved.empty()) result["saved_step"] = saved.back();
    if (!newest.training.is_null()) result["metrics"] = newest.training;
    if (!newest.held_out.is_null()) result["held_out"] = newest.held_out;
    if (!newest.returns.is_null()) result["returns"] = newest.returns;
    result["paths"] = paths_of(*folder_, saved.empty() ? fs::path() : checkpoints.path_of(saved.back()));
  }
  print_answer(result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void TrainingResult::print_leniently(Json result) {
  try {
    print(std::move(result));
  } catch (const std::exception& fault) {
    print_error(fmt::format("adtrain: the result was not printed: {}\n", fault.what()));
  }
}

}  // namespace adtrain

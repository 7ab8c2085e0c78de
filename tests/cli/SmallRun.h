#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/File.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {

/// A run small enough for a test, driven as a user drives it: by the program itself, in a folder of its own.
class SmallRun {
 public:
  SmallRun() { write("small.yaml", kConfig); }

  const std::filesystem::path& folder() const { return folder_.path(); }
  std::filesystem::path run(const std::string& name = "small") const { return folder() / "runs" / name; }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomically(folder() / name, text);
  }
  std::string read(const std::filesystem::path& relative) const { return read_file(folder() / relative); }

  /// `adtrain arguments`, as one process.
  Finished adtrain(const std::string& arguments) const { return launch("", arguments); }
  /// Under the real mpirun.
  Finished mpirun(int ranks, const std::string& arguments) const {
    return launch(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none "
        "-np " +
            std::to_string(ranks) + " ",
        arguments);
  }
  /// Under the real torchrun; every start gets a port of its own.
  Finished torchrun(int ranks, const std::string& arguments) const {
    return launch(std::string(ADTRAIN_TORCHRUN) + " --no-python --standalone --nproc-per-node " +
                      std::to_string(ranks) + " ",
                  arguments);
  }
  /// The histories that every run in this folder trains on.
  Finished collect() const { return adtrain("collect small.yaml"); }

  /// Every record of metrics.jsonl that has `key`, in order.
  std::vector<nlohmann::json> metrics(const std::string& name, const std::string& key) const {
    std::vector<nlohmann::json> records;
    std::istringstream lines(read_file(run(name) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains(key)) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  Finished launch(const std::string& launcher, const std::string& arguments) const {
    return run_shell("cd " + quoted(folder().string()) + " && OMP_NUM_THREADS=1 timeout 600 " +
                     env_prefix(launcher) + ADTRAIN_BINARY_DIR "/adtrain " + arguments);
  }
  /// `timeout` runs programs, not assignments.
  static std::string env_prefix(const std::string& launcher) {
    return launcher.empty() ? "" : "env " + launcher;
  }

  // A 5×5 room: 25 tasks, episodes of 8 steps.
  static constexpr const char* kConfig = R"(
env: darkroom
grid_size: 5
horizon: 8
train_env_ratio: 0.8
alg: PPO
alg_seed: 1
n_steps: 8
batch_size: 40
n_epochs: 2
n_stream: 10
total_source_timesteps: 800
model: AD
tf_n_embd: 16
tf_n_layer: 2
tf_n_head: 2
tf_n_inner: 32
n_transit: 16
tf_dropout: 0
tf_attn_dropout: 0
loss_positions: all
lr: 3.0e-3
num_warmup_steps: 5
train_timesteps: 20
global_batch_size: 24
test_batch_size: 64
train_source_timesteps: 80
train_n_stream: 10
num_workers: 1
summary_interval: 1
eval_interval: 10
ckpt_interval: 10
eval_episodes: 5
run_name: small
device: cpu
)";
  TemporaryFolder folder_;
};

}  // namespace adtrain

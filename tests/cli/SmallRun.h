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

/// Lines of shell that define `await`: it repeats a command until it succeeds, for two minutes at most.
constexpr const char* kAwait =
    "await() { tries=0; until \"$@\"; do tries=$((tries + 1)); [ $tries -lt 1200 ] || return 1; sleep 0.1; "
    "done; }; ";

/// A run small enough for a test, driven as a user drives it: by the program itself, in a folder of its own.
class SmallRun {
 public:
  SmallRun() { write("small.yaml", read_file(ADTRAIN_SOURCE_DIR "/tests/support/small.yaml")); }

  const std::filesystem::path& folder() const { return folder_.path(); }
  std::filesystem::path run(const std::string& name = "small") const { return folder() / "runs" / name; }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomically(folder() / name, text);
  }
  std::string read(const std::filesystem::path& relative) const { return read_file(folder() / relative); }

  /// `adtrain arguments`, as one process.
  Finished adtrain(const std::string& arguments) const { return launch("", program(arguments)); }
  /// Under the real mpirun.
  Finished mpirun(int ranks, const std::string& arguments) const {
    return launch(with_mpirun(ranks), program(arguments));
  }
  /// The same of ranks that are each these lines of shell, which know their OMPI_COMM_WORLD_RANK.
  Finished mpirun_shell(int ranks, const std::string& lines) const {
    write("rank.sh", lines + "\n");
    return launch(with_mpirun(ranks), "bash rank.sh");
  }
  /// Under the real torchrun; every start gets a port of its own.
  Finished torchrun(int ranks, const std::string& arguments) const {
    return launch(std::string(ADTRAIN_TORCHRUN) + " --no-python --standalone --nproc-per-node " +
                      std::to_string(ranks) + " ",
                  program(arguments));
  }
  /// The same of ranks that are each these lines of shell, which know their RANK and
  /// TORCHELASTIC_RESTART_COUNT.
  Finished torchrun_shell(int ranks, const std::string& options, const std::string& lines) const {
    write("rank.sh", lines + "\n");
    return launch(std::string(ADTRAIN_TORCHRUN) + " --no-python --standalone --nproc-per-node " +
                      std::to_string(ranks) + " " + options + " ",
                  "bash rank.sh");
  }
  /// Lines of bash in this folder, which find the program as $adtrain.
  Finished shell(const std::string& lines) const {
    write("script.sh", "adtrain=" ADTRAIN_BINARY_DIR "/adtrain\n" + lines + "\n");
    return run_shell("cd " + quoted(folder().string()) + " && OMP_NUM_THREADS=1 timeout 600 bash script.sh");
  }
  /// The histories that every run in this folder trains on: small.yaml's own, which are collected once in the
  /// life of this process, and copied after that. Not thread-safe.
  Finished collect() const {
    static const TemporaryFolder collected;
    const std::filesystem::path source = collected.path() / "histories", target = folder() / "histories";
    if (std::filesystem::exists(source) && !std::filesystem::exists(target)) {
      std::filesystem::copy(source, target, std::filesystem::copy_options::recursive);
      return {0, ""};
    }
    Finished finished = adtrain("collect small.yaml");
    if (finished.exit_code == 0 && !std::filesystem::exists(source)) {
      std::filesystem::copy(target, source, std::filesystem::copy_options::recursive);
    }
    return finished;
  }

  /// The weights and the optimizer's state of a checkpoint, byte for byte.
  std::string state(const std::string& name, int64_t step) const {
    const std::filesystem::path checkpoint = run(name) / "checkpoints" / ("step-" + std::to_string(step));
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors");
  }

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
  Finished launch(const std::string& launcher, const std::string& command) const {
    return run_shell("cd " + quoted(folder().string()) + " && OMP_NUM_THREADS=1 timeout 600 " +
                     env_prefix(launcher) + command);
  }
  static std::string program(const std::string& arguments) {
    return ADTRAIN_BINARY_DIR "/adtrain " + arguments;
  }
  static std::string with_mpirun(int ranks) {
    return "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none "
           "-np " +
           std::to_string(ranks) + " ";
  }
  /// `timeout` runs programs, not assignments.
  static std::string env_prefix(const std::string& launcher) {
    return launcher.empty() ? "" : "env " + launcher;
  }

  TemporaryFolder folder_;
};

}  // namespace adtrain

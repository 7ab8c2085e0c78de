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
  SmallRun() { write("small.yaml", read_file(ADTRAIN_SOURCE_DIR "/tests/support/small.yaml")); }

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

  TemporaryFolder folder_;
};

}  // namespace adtrain

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "data/HistoryFile.h"
#include "data/HistoryFileWriter.h"
#include "data/HistorySamples.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

/// Three tasks of 12 steps × 4 streams, with rollouts of 6 steps marked, in memory and as JSON.
struct Dump {
  Dump() {
    nlohmann::json tasks_json = nlohmann::json::array();
    for (uint64_t task = 0; task < 3; ++task) {
      History history = random_history(12, 4, 6, 50 + task);
      for (int64_t step = 0; step < 12; ++step) {
        history.compress_markers.insert(history.compress_markers.end(), 4,
                                        step % 6 == 0   ? 1
                                        : step % 6 == 5 ? 2
                                                        : 0);
      }
      tasks_json.push_back({{"states", history.states},
                            {"actions", history.actions},
                            {"rewards", history.rewards},
                            {"next_states", history.next_states},
                            {"dones", history.dones},
                            {"compress_markers", history.compress_markers}});
      tasks.push_back(std::move(history));
    }
    write_file(json, nlohmann::json{{"steps", 12}, {"streams", 4}, {"tasks", tasks_json}}.dump());
  }

  Finished run(const char* script, const std::string& arguments = "") const {
    return run_shell(fmt::format("{} {} {} {} {}", quoted(ADTRAIN_PYTHON),
                                 quoted(fmt::format("{}/tests/interop/{}", ADTRAIN_SOURCE_DIR, script)),
                                 quoted(file.string()), quoted(json.string()), arguments));
  }

  TemporaryFolder folder;
  std::filesystem::path file = folder.path() / "history.hdf5", json = folder.path() / "dump.json";
  std::vector<History> tasks;
};

TEST(HistoryInterop, H5pyReadsWhatWeWrite) {
  for (const int compression : {0, 4}) {
    const Dump dump;
    HistoryFileWriter writer(dump.file, NumberRanges::below(3), {{"env", "darkroom"}, {"horizon", "6"}},
                             compression);
    for (int64_t task = 2; task >= 0; --task) writer.write(task, dump.tasks[static_cast<size_t>(task)]);
    writer.finish();
    const Finished python = dump.run("read_history.py", std::to_string(compression));
    EXPECT_EQ(python.exit_code, 0) << python.output;
    EXPECT_EQ(python.output, "read 3 tasks\n");
  }
}

TEST(HistoryInterop, WeReadWhatH5pyWrites) {
  const Dump dump;
  const Finished python = dump.run("write_history.py");
  ASSERT_EQ(python.exit_code, 0) << python.output;
  const HistoryFile file(dump.file);
  ASSERT_EQ(file.tasks().count(), 3);
  for (int64_t task = 0; task < 3; ++task) {
    const History read = file.read(task, 12, 4, {.grid_size = 9, .num_actions = 5});
    const History& written = dump.tasks[static_cast<size_t>(task)];
    EXPECT_EQ(read.states, written.states);
    EXPECT_EQ(read.actions, written.actions);
    EXPECT_EQ(read.rewards, written.rewards);
    EXPECT_EQ(read.next_states, written.next_states);
    EXPECT_EQ(read.dones, written.dones);
    EXPECT_EQ(read.compress_markers, written.compress_markers);
  }
}

}  // namespace
}  // namespace adtrain

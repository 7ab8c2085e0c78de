#include "data/reader/ReaderProcess.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/Error.h"
#include "data/HistoryFileWriter.h"
#include "data/HistorySamples.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// The reader that this process has started and that lives.
pid_t reader_of_this_process() {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");  // "12 (adtrain-history) S 11 …": the fourth is its parent
    std::string process, program, state, parent;
    stat >> process >> program >> state >> parent;
    if (program == "(adtrain-history)" && state != "Z" && parent == std::to_string(getpid()))
      return std::stoi(name);
  }
  throw std::runtime_error("no reader was started");
}

struct Opened {
  Opened() {
    HistoryFileWriter writer(path, NumberRanges::below(1), {});
    writer.write(0, random_history(12, 4, 6, 1));
    writer.finish();
    reader.ask({{"do", "open"}, {"path", path.string()}}, "a.hdf5: opening it");
    reader.answer();
  }
  /// What the next request is answered with.
  template <class Failure>
  std::string complaint() {
    try {
      reader.ask({{"do", "open"}, {"path", path.string()}}, "a.hdf5: opening it");
      reader.answer();
    } catch (const Failure& error) {
      return error.what();
    }
    return "no complaint";
  }

  TemporaryFolder folder;
  fs::path path = folder.path() / "a.hdf5";
  ReaderProcess reader;
};

TEST(ReaderProcess, ACrashIsADataErrorThatNamesFileAndSignal) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) {
    Opened opened;
    kill(reader_of_this_process(), signal);
    EXPECT_THAT(opened.complaint<DataError>(),
                AllOf(HasSubstr("a.hdf5: opening it crashed the HDF5 library"),
                      HasSubstr(fmt::format("signal {}", signal)), HasSubstr("fetch or collect it again")));
    EXPECT_THAT(opened.complaint<DataError>(), HasSubstr("a.hdf5")) << "asked again, it does not wait";
  }
}

TEST(ReaderProcess, TooMuchProcessorTimeIsADataError) {
  Opened opened;
  kill(reader_of_this_process(), SIGXCPU);
  EXPECT_THAT(opened.complaint<DataError>(), HasSubstr("more processor time than a whole file needs"));
}

TEST(ReaderProcess, BeingKilledFromOutsideIsNotTheFilesFault) {
  Opened opened;
  kill(reader_of_this_process(), SIGKILL);
  EXPECT_THAT(opened.complaint<EnvironmentError>(), HasSubstr("memory runs out"));
}

TEST(ReaderProcess, ARequestThatIsTooLongIsNotTheFilesFault) {
  Opened opened;
  std::string found;
  try {
    opened.reader.ask({{"do", "open"}, {"path", std::string(2'000'000, 'x')}}, "a.hdf5: opening it");
  } catch (const DataError& error) {
    found = error.what();
  }
  EXPECT_THAT(found, AllOf(HasSubstr("a.hdf5: opening it: found a request of 2 000 0"),
                           HasSubstr("expected 1 048 576 at most: shorten")));
  EXPECT_EQ(opened.complaint<DataError>(), "no complaint") << "the process still answers";
}

TEST(ReaderProcess, IsDeafToSignalsOfGroupsAndLeavesNothingBehind) {
  pid_t child = 0;
  {
    Opened opened;
    child = reader_of_this_process();
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) kill(child, signal);
    EXPECT_EQ(opened.complaint<DataError>(), "no complaint");
    EXPECT_EQ(std::distance(fs::directory_iterator(fmt::format("/proc/{}/fd", child)), {}), 4)
        << "its socket, twice nothing, and the history file";
  }
  EXPECT_NE(kill(child, 0), 0);
}

TEST(ReaderProcess, StartedByHandItSaysWhoseItIs) {
  const Finished finished = run_shell(ADTRAIN_BINARY_DIR "/adtrain-history-reader");
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.output, HasSubstr("a part of adtrain"));
}

}  // namespace
}  // namespace adtrain

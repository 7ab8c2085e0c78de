#include "telemetry/AppendingFile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(AppendingFile, ContinuesWhatIsThereAndIsReadableAtOnce) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "deep" / "log";
  {
    AppendingFile file(path);
    file.append("one\n");
    EXPECT_EQ(read_file(path), "one\n");
  }
  AppendingFile file(path);
  file.append("two\n");
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  EXPECT_THAT(file.failure(), IsEmpty());
}

TEST(AppendingFile, AFullDiskIsTold) {
  AppendingFile file("/dev/full");
  file.append("lost");
  EXPECT_THAT(file.failure(), AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

TEST(AppendingFile, ARecordThatDoesNotFitLeavesNoHalfAndLaterOnesGoOn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "log";
  AppendingFile file(path);
  file.append("0123456789\n");
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limited{16, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limited);
  file.append("this is longer\n");  // five bytes of it would fit
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(file.failure(), AllOf(HasSubstr(path.string()), HasSubstr("File too large")));
  EXPECT_EQ(read_file(path), "0123456789\n");
  file.append("after\n");
  EXPECT_THAT(file.failure(), IsEmpty());
  EXPECT_EQ(read_file(path), "0123456789\nafter\n");
}

TEST(AppendingFile, AFileThatCannotBeOpenedNamesItself) {
  try {
    AppendingFile file("/proc/adtrain/log");
    FAIL();
  } catch (const std::filesystem::filesystem_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/adtrain"));
  }
}

}  // namespace
}  // namespace adtrain

#include <algorithm>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/File.h"
#include "fuzz/Targets.h"

/// The corpora, and whatever a fuzzer once found, go through the targets in every run of the tests, built by
/// the compiler that builds the program. `tests/fuzz/run.sh` is the fuzzers themselves.
namespace adtrain::fuzz {
namespace {

std::vector<std::filesystem::path> corpus_of(const std::string& name) {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(
           std::filesystem::path(ADTRAIN_SOURCE_DIR "/tests/fuzz/corpus") / name)) {
    files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Corpora : public testing::TestWithParam<NamedTarget> {};

TEST_P(Corpora, AreReadWithoutACrashOrAHang) {
  const std::vector<std::filesystem::path> files = corpus_of(GetParam().name);
  ASSERT_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    const std::string bytes = read_file(file);
    const Stopwatch watch;
    GetParam().run(bytes);
    EXPECT_LT(watch.seconds(), 20) << file;
    // Cut anywhere it is an input too.
    for (const size_t part : {size_t{2}, size_t{3}, size_t{7}}) {
      GetParam().run(std::string_view(bytes).substr(0, bytes.size() / part));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpora, testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace adtrain::fuzz

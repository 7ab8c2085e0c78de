#include "run/Plugins.h"

#include <gtest/gtest.h>

#include "base/File.h"
#include "run/RunConfig.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

constexpr const char* kSample = ADTRAIN_BINARY_DIR "/libsample_plugin.so";

/// The first configuration that names a plug-in may say what it adds: no other has loaded it before.
TEST(Plugins, AddWhatTheConfigurationThatNamesThemMaySay) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.yaml";
  write_file_atomically(file, "env: sample_line\nmodel: sample_network\n");
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(file, {std::string("plugins=") + kSample}, notices);
  EXPECT_EQ(config.environment.env, "sample_line");
  EXPECT_TRUE(config.model.is_plugin());
  EXPECT_NE(config.resolved_yaml().find("model: sample_network\n"), std::string::npos);
}

TEST(Plugins, MayBeNamedInAMapOfAGuide) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.yaml";
  write_file_atomically(file, std::string("experiment:\n  env: sample_line\n  plugins: ") + kSample + "\n");
  std::vector<std::string> notices;
  EXPECT_EQ(RunConfig::load(file, {}, notices).environment.env, "sample_line");
}

}  // namespace
}  // namespace adtrain

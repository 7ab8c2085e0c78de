#include "evaluation/EvaluationProtocol.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "config/Binder.h"
#include "config/Document.h"
#include "evaluation/EvaluationOptions.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

/// What a file and assignments on the command line mean.
EvaluationOptions options_of(const std::string& yaml, const std::vector<std::string>& assignments) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "base.yaml", "eval_episodes: 9\neval_context: recompute\n");
  write_file_atomically(folder.path() / "run.yaml", yaml);
  Document document;
  document.read_file(folder.path() / "run.yaml");
  for (const std::string& assignment : assignments) document.set(assignment);
  unfold_eval_protocol(document);
  EvaluationOptions options;
  Section section("evaluation");
  options.declare(section);
  Binder({&section}).bind(document);
  return options;
}

void expect_xland(const EvaluationOptions& options) {
  EXPECT_EQ(options.eval_protocol, EvaluationProtocol::kXland);
  EXPECT_EQ(options.eval_episodes, 500);
  EXPECT_EQ(options.eval_repeats, 1);
  EXPECT_EQ(options.eval_tasks, "test");
  EXPECT_EQ(options.eval_task_limit, 1024);
  EXPECT_EQ(options.eval_sampling, Sampling::kGreedy);
  EXPECT_EQ(options.eval_context, EvaluationContext::kRolling);
}

TEST(EvaluationProtocol, SetsItsKeysWhereverItIsWritten) {
  expect_xland(options_of("eval_protocol: xland\n", {}));
  expect_xland(options_of("eval_protocol: XLand\n", {}));
  expect_xland(options_of("include: base.yaml\neval_protocol: xland\n", {}));
  const std::string saved =
      "eval_episodes: 50\neval_repeats: 4\neval_tasks: all\neval_task_limit: null\neval_sampling: "
      "sample\neval_context: recompute\neval_protocol: none\n";
  expect_xland(options_of(saved, {"eval_protocol=xland"}));

  const EvaluationOptions vintix = options_of("eval_repeats: 3\n", {"eval_protocol=vintix"});
  EXPECT_EQ(vintix.eval_protocol, EvaluationProtocol::kVintix);
  EXPECT_EQ(vintix.eval_sampling, Sampling::kGreedy);
  EXPECT_EQ(vintix.eval_context, EvaluationContext::kRolling);
  EXPECT_EQ(vintix.eval_repeats, 3);
  EXPECT_EQ(vintix.eval_episodes, EvaluationOptions().eval_episodes);
}

TEST(EvaluationProtocol, KeysBesideItOrLaterKeepTheirValues) {
  EXPECT_EQ(options_of("eval_protocol: xland\neval_episodes: 7\n", {}).eval_episodes, 7);
  EXPECT_EQ(options_of("eval_episodes: 7\neval_protocol: xland\n", {}).eval_episodes, 7);
  for (const bool first : {false, true}) {
    std::vector<std::string> assignments = {"eval_protocol=xland"};
    assignments.insert(first ? assignments.begin() : assignments.end(), "eval_episodes=8");
    const EvaluationOptions options = options_of("eval_episodes: 7\neval_task_limit: 3\n", assignments);
    EXPECT_EQ(options.eval_episodes, 8) << first;
    EXPECT_EQ(options.eval_task_limit, 1024) << "the file's is earlier";
  }
  const EvaluationOptions later = options_of("eval_protocol: xland\n", {"eval_context=recompute"});
  EXPECT_EQ(later.eval_context, EvaluationContext::kRecompute);
  EXPECT_EQ(later.eval_episodes, 500);
}

TEST(EvaluationProtocol, ThatIsNoneOrUnknownSetsNothing) {
  EXPECT_EQ(options_of("eval_protocol: none\n", {}).eval_episodes, EvaluationOptions().eval_episodes);
  try {
    options_of("eval_protocol: vintx\n", {});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("run.yaml:1: eval_protocol"),
                                             testing::HasSubstr("none, xland or vintix")));
  }
}

}  // namespace
}  // namespace adtrain

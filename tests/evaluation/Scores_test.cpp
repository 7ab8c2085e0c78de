#include "evaluation/Scores.h"

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "support/Process.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Scores, AreNormalisedByThoseOfARandomAndOfAnExpertPolicy) {
  const auto scores = ReferenceScores::from_attributes(
      {{"random-score", "-20.5"}, {"expert-score", "79.5"}, {"task", "x"}}, "");
  ASSERT_TRUE(scores);
  EXPECT_EQ(scores->normalised(-20.5), 0);
  EXPECT_EQ(scores->normalised(79.5), 1);
  EXPECT_NEAR(scores->normalised(104.5), 1.25, 1e-12);
  EXPECT_FALSE(ReferenceScores::from_attributes({{"expert-score", "1"}}, ""));
}

TEST(Scores, WithoutMeaningAreRefusedByName) {
  const auto complaint = [](const std::string& random, const std::string& expert) {
    try {
      ReferenceScores::from_attributes({{"random-score", random}, {"expert-score", expert}},
                                       "x.hdf5: task 3");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no complaint");
  };
  EXPECT_THAT(complaint("good", "1"),
              AllOf(HasSubstr("x.hdf5: task 3"), HasSubstr("random-score is 'good'")));
  EXPECT_THAT(complaint("1", "inf"), HasSubstr("expert-score is 'inf'"));
  EXPECT_THAT(complaint("2", "2.0"), HasSubstr("are both 2"));
}

/// The definition that rliable takes from SciPy, written down in NumPy: sort, cut int(0.25 n) at each end.
TEST(Scores, TheInterquartileMeanIsRliables) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomStream random(seed);
  std::ostringstream lists;
  std::vector<double> found;
  for (size_t size = 1; size <= 41; ++size) {
    std::vector<double> scores;
    for (size_t i = 0; i < size; ++i) scores.push_back(3 * random.normal());
    found.push_back(interquartile_mean(scores));
    for (const double score : scores) lists << fmt::format("{} ", score);
    lists << "\n";
  }
  const Finished python =
      run_shell("printf '%s' " + quoted(lists.str()) + " | " + quoted(ADTRAIN_PYTHON) +
                " -c 'import sys, numpy as np\n"
                "for line in sys.stdin:\n"
                "    scores = np.sort(np.array(line.split(), float)); cut = int(0.25 * len(scores))\n"
                "    print(repr(float(scores[cut:len(scores) - cut].mean())))'");
  ASSERT_EQ(python.exit_code, 0) << python.output;
  std::istringstream expected(python.output);
  for (const double mean : found) {
    double wanted = 0;
    ASSERT_TRUE(expected >> wanted);
    EXPECT_NEAR(mean, wanted, 1e-12);
  }
}

}  // namespace
}  // namespace adtrain

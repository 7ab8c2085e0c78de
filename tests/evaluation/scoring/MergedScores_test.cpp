#include "evaluation/scoring/MergedScores.h"

#include <cstdint>
#include <functional>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "data/WindowFinder.h"
#include "support/FullDisk.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Scores of 11 of 33 windows: all of them, or part `index` of `count`.
Scores scores_of(int64_t index, int64_t count) {
  Scores scores;
  scores.scored = {
      {"checkpoint_step", 20}, {"checkpoint_digest", "0123"}, {"histories_digest", "ab"}, {"score_batch", 1}};
  scores.histories = "histories.hdf5";
  scores.tasks = {{4, "task 4", false}, {9, "task 9", true}};
  scores.windows = 33;
  scores.total = 11;
  scores.shard = {index, count};
  scores.places = NumberSpan{0, 11}.part(index, count);
  for (int64_t place = scores.places.first; place < scores.places.end; ++place) {
    const auto number = static_cast<float>(place);
    scores.table.append(
        {spread(place, 11, 33), place < 6 ? 4 : 9, 0, place, {1}, {0.1F * number, number, place % 3}});
  }
  scores.seconds = static_cast<double>(index + 1);
  return scores;
}

/// Parts in folders.
class MergedScores : public testing::Test {
 protected:
  /// Writes a part, and returns its folder.
  fs::path part(int64_t index, int64_t count, const std::function<void(Scores&)>& change = {}) const {
    Scores scores = scores_of(index, count);
    if (change) change(scores);
    const fs::path path = folder_.path() / ("part-" + std::to_string(index) + "-of-" + std::to_string(count));
    write_scores(path, scores, /*overwrite=*/true);
    return path;
  }
  std::string refusal(const std::vector<fs::path>& parts) const {
    try {
      merged_scores(parts);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }

  /// Of the second of two parts, with another value in its summary.json.
  std::string refusal_with(const char* place, const nlohmann::ordered_json& value) const {
    const fs::path bad = part(1, 2);
    auto summary = nlohmann::ordered_json::parse(read_file(bad / "summary.json"));
    summary[nlohmann::ordered_json::json_pointer(place)] = value;
    write_file(bad / "summary.json", summary.dump());
    return refusal({part(0, 2), bad});
  }

  TemporaryFolder folder_;
};

TEST_F(MergedScores, AreThoseOfOneProcessWhateverTheOrder) {
  const Scores whole = scores_of(0, 1);
  for (const std::vector<fs::path>& parts :
       {std::vector{part(2, 4), part(0, 4), part(3, 4), part(1, 4)},
        std::vector{part(1, 2), part(0, 4), part(1, 4)}, std::vector{part(0, 1)}}) {
    const Scores merged = merged_scores(parts);
    EXPECT_EQ(merged.table.npy(), whole.table.npy());
    nlohmann::ordered_json found = merged.summary(), expected = whole.summary();
    for (nlohmann::ordered_json* const summary : {&found, &expected}) {
      summary->erase("seconds");
      summary->erase("samples_per_second");
    }
    EXPECT_EQ(found, expected);
  }
  EXPECT_EQ(merged_scores({part(0, 4), part(1, 4), part(2, 4), part(3, 4)}).seconds, 4);
}

TEST_F(MergedScores, OfMoreShardsThanSamplesSomeAreEmpty) {
  std::vector<fs::path> parts;
  for (int64_t index = 0; index < 20; ++index) parts.push_back(part(index, 20));
  EXPECT_EQ(merged_scores(parts).table.bytes(), scores_of(0, 1).table.bytes());
}

TEST_F(MergedScores, RefuseGapsAndDuplicates) {
  EXPECT_THAT(refusal({part(0, 4), part(3, 4)}),
              AllOf(HasSubstr("samples 2 to 7 of 11 are missing"), HasSubstr("--shard 1/4, 2/4")));
  EXPECT_THAT(refusal({part(1, 4), part(2, 4), part(3, 4)}), HasSubstr("samples 0 to 1 of 11 are missing"));
  EXPECT_THAT(refusal({part(0, 11), part(1, 11)}), HasSubstr("samples 2 to 10 of 11 are missing"));
  EXPECT_THAT(refusal({part(0, 4), part(1, 2)}),
              AllOf(HasSubstr("samples 2 to 4 of 11 are missing;"), Not(HasSubstr("--shard"))));
  EXPECT_THAT(refusal({part(0, 4), part(1, 4), part(2, 4), part(1, 2)}),
              AllOf(HasSubstr("part-2-of-4 and "), HasSubstr("part-1-of-2 both have samples 5 to 7 of 11")));
  EXPECT_THAT(refusal({part(0, 2), part(0, 2), part(1, 2)}), HasSubstr("both have samples 0 to 4 of 11"));
}

TEST_F(MergedScores, RefuseOtherWeightsAndSettings) {
  const auto with = [](const char* key, nlohmann::ordered_json value) {
    return [key, value](Scores& scores) { scores.scored[key] = value; };
  };
  EXPECT_THAT(refusal({part(0, 2), part(1, 2, with("checkpoint_digest", "4567"))}),
              AllOf(HasSubstr("part-1-of-2 is of other weights than "), HasSubstr("part-0-of-2"),
                    HasSubstr("checkpoint_digest is \"4567\", and there \"0123\"")));
  EXPECT_THAT(refusal({part(0, 2), part(1, 2, with("score_batch", 2))}),
              AllOf(HasSubstr("other settings"), HasSubstr("score_batch is 2, and there 1")));
  EXPECT_THAT(refusal({part(0, 2), part(1, 2, with("histories_digest", "cd"))}),
              HasSubstr("other histories"));
  EXPECT_THAT(refusal({part(0, 2), part(1, 2, with("new", 1))}), HasSubstr("new is 1, and there absent"));
  EXPECT_THAT(refusal({part(0, 2), part(1, 2, [](Scores& scores) { scores.windows = 34; })}),
              HasSubstr("has 11 of 34 windows"));
}

TEST_F(MergedScores, RefuseAnotherSplit) {
  const auto with_task_9 = [](const std::string& name, bool trained) {
    return [name, trained](Scores& scores) { scores.tasks = {{4, "task 4", false}, {9, name, trained}}; };
  };
  EXPECT_THAT(refusal({part(0, 4), part(1, 4), part(2, 4), part(3, 4, with_task_9("task 9", false))}),
              AllOf(HasSubstr("part-3-of-4 is of other tasks than "), HasSubstr("part-2-of-4: "),
                    HasSubstr("task 9 is 'task 9', held out, and there 'task 9', trained on")));
  EXPECT_THAT(refusal({part(0, 4), part(1, 4), part(2, 4), part(3, 4, with_task_9("other", true))}),
              HasSubstr("9 is 'other', trained on, and there 'task 9', trained on"));
}

TEST_F(MergedScores, RefuseWhatIsNoPart) {
  const fs::path good = part(0, 2), bad = part(1, 2);
  EXPECT_THAT(refusal({good, folder_.path() / "part-1-of-3"}),
              AllOf(HasSubstr("part-1-of-3 does not exist"), HasSubstr("did you mean")));
  EXPECT_THAT(refusal({good, good / "scores.csv"}), HasSubstr("part-0-of-2/scores.csv is a file"));
  write_file(bad / "scores.npy", read_file(bad / "scores.npy") + "x");
  EXPECT_THAT(refusal({good, bad}),
              AllOf(HasSubstr("part-1-of-2/scores.npy"), HasSubstr("the checksum differs")));
  write_file(bad / "summary.json", "{}");
  EXPECT_THAT(refusal({good, bad}),
              AllOf(HasSubstr("part-1-of-2/summary.json"), HasSubstr("score this part again")));
  fs::remove(bad / "scores.npy");
  const auto incomplete = AllOf(HasSubstr("part-1-of-2 holds no complete scoring: "),
                                HasSubstr("score this part again"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refusal({good, bad}), AllOf(incomplete, HasSubstr("scores.npy is not there")));
  fs::remove(bad / "summary.json");
  write_file(bad / "requeue", "");
  EXPECT_THAT(refusal({good, bad}), AllOf(incomplete, HasSubstr("summary.json is not there")));
  const fs::path shifted = part(1, 2, [](Scores& scores) {
    SampleScore row = scores.table[0];
    row.sample += 1;
    ScoreTable table{ScoreTable::Layout()};
    table.append(row);
    for (int64_t i = 1; i < scores.table.size(); ++i) table.append(scores.table[i]);
    scores.table = table;
  });
  EXPECT_THAT(refusal({good, shifted}), HasSubstr("row 0 is sample 16; expected sample 15"));
}

TEST_F(MergedScores, RefuseDamagedSummaries) {
  const auto expect_refused = [&](const char* place, const nlohmann::ordered_json& value, const char* says) {
    EXPECT_THAT(refusal_with(place, value), AllOf(HasSubstr("part-1-of-2/summary.json: "), HasSubstr(says),
                                                  HasSubstr("score this part again")));
  };
  expect_refused("/part/of", 0, "of is 0; expected a whole number from 1 to 33");
  expect_refused("/part/of", 34, "of is 34; expected a whole number from 1 to 33");
  expect_refused("/part/windows", 0, "windows is 0");
  expect_refused("/part/windows", UINT64_MAX, "windows is 18446744073709551615");
  expect_refused("/part/end", 12, "end is 12; expected a whole number from 0 to 11");
  expect_refused("/part/first", -1, "first is -1; expected a whole number from 0 to 11");
  expect_refused("/part/first", 5.5, "first is 5.5");
  expect_refused("/part/action_elements", -6, "action_elements is -6");
  expect_refused("/part/action_elements", (int64_t{1} << 61) - 6, "action_elements is 2305843009213693946");
  expect_refused("/scored", {1, 2}, "scored is [1,2]; expected an object");
  EXPECT_THAT(refusal_with("/tasks", nlohmann::ordered_json::array()),
              AllOf(HasSubstr("part-1-of-2/scores.npy: row 0 is of task 4"), HasSubstr("summary.json")));
}

TEST_F(MergedScores, APartWithoutSamplesHasNoFigures) {
  const auto summary = nlohmann::json::parse(read_file(part(0, 20) / "summary.json"));
  EXPECT_EQ(summary.at("samples"), 0);
  EXPECT_TRUE(summary.at("loss").is_null()) << summary.at("loss");
  EXPECT_THAT(scores_of(0, 20).figures().table(9).back(), Not(HasSubstr("0.0")));
}

TEST_F(MergedScores, OnAFullDiskTheOldScoresStay) {
  const fs::path folder = part(0, 2);
  const std::string before = read_file(folder / "summary.json");
  for (const size_t room : {size_t{16}, before.size() - 1}) {  // for no file, and for all but the summary
    const FileSizeLimit full(room);
    EXPECT_THROW(part(0, 2), fs::filesystem_error);
  }
  EXPECT_EQ(read_file(folder / "summary.json"), before);
  EXPECT_EQ(read_scores(folder).table.bytes(), scores_of(0, 2).table.bytes());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3)
      << "no temporary file";
}

TEST_F(MergedScores, ThoseOfAnotherProcessAreNotReplaced) {
  const fs::path folder = part(0, 1);
  const std::string before = read_file(folder / "scores.npy");
  EXPECT_THROW(write_scores(folder, scores_of(0, 2), /*overwrite=*/false), ConfigError);
  EXPECT_EQ(read_file(folder / "scores.npy"), before);
  EXPECT_EQ(read_scores(folder).table.size(), 11);
}

TEST_F(MergedScores, FoldersAreOverwrittenOnRequestAlone) {
  const fs::path folder = part(0, 1);
  EXPECT_THROW(refuse_to_overwrite(folder, false), ConfigError);
  EXPECT_NO_THROW(refuse_to_overwrite(folder, true));
  EXPECT_NO_THROW(refuse_to_overwrite(folder_.path(), false)) << "parts in it are no scores of its own";
}

}  // namespace
}  // namespace adtrain

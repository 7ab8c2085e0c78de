#include "run/TaskLists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The key's text after that, or the document's only error.
std::string unfolded(Document document, const std::string& key) {
  unfold_task_lists(document);
  if (!document.errors().empty()) {
    EXPECT_EQ(document.errors().size(), 1U);
    EXPECT_EQ(document.find(key), nullptr);
    return document.errors().front();
  }
  return document.find(key)->text;
}

std::string of_assignment(const std::string& assignment) {
  Document document;
  document.set(assignment);
  return unfolded(document, assignment.substr(0, assignment.find('=')));
}

TEST(TaskLists, HaveOneFormHoweverTheyAreWritten) {
  EXPECT_EQ(of_assignment("tasks=7"), "7");
  EXPECT_EQ(of_assignment("tasks=0-39"), "0-39");
  EXPECT_EQ(of_assignment("tasks=50, 3,0-2"), "0-3,50");
  EXPECT_EQ(of_assignment("train_tasks=[0-39, 50, 40]"), "0-40,50");
  EXPECT_EQ(of_assignment("eval_tasks=[5]"), "5");
}

TEST(TaskLists, LeaveTheWordsOfAnEvaluation) {
  EXPECT_EQ(of_assignment("eval_tasks=Train"), "train");
  EXPECT_EQ(of_assignment("eval_tasks=[all]"), "all");
  EXPECT_THAT(of_assignment("tasks=all"), HasSubstr("found 'all'"));
  EXPECT_THAT(of_assignment("eval_tasks=[test, 3]"), HasSubstr("found 'test'"));
}

TEST(TaskLists, ReadFilesBesideTheOneThatNamesThem) {
  const TemporaryFolder folder;
  write_file(folder.path() / "goals.txt", "# corners\n0\n8\r\n\n72, 80  # below\n30-33\n");
  write_file(folder.path() / "run.yaml", "tasks: [goals.txt, 5]\neval_tasks: goals.txt\n");
  Document document;
  document.read_file(folder.path() / "run.yaml");
  EXPECT_EQ(unfolded(document, "tasks"), "0,5,8,30-33,72,80");
  EXPECT_EQ(unfolded(document, "eval_tasks"), "0,8,30-33,72,80");
  EXPECT_EQ(of_assignment("train_tasks=" + (folder.path() / "goals.txt").string()), "0,8,30-33,72,80");
}

TEST(TaskLists, AFilesMistakesHaveTheirLine) {
  const TemporaryFolder folder;
  write_file(folder.path() / "goals.txt", "3\n\nfour\n");
  write_file(folder.path() / "empty.txt", "# none\n");
  write_file(folder.path() / "run.yaml", "env: darkroom\ntasks: goals.txt\n");
  Document document;
  document.read_file(folder.path() / "run.yaml");
  EXPECT_THAT(unfolded(document, "tasks"),
              AllOf(HasSubstr("run.yaml:2: tasks: "), HasSubstr("goals.txt:3: found 'four'; expected")));
  EXPECT_THAT(of_assignment("tasks=" + (folder.path() / "empty.txt").string()),
              HasSubstr("empty.txt: found no task there"));
}

TEST(TaskLists, WhatIsNoneSaysWhatIsMeant) {
  EXPECT_THAT(of_assignment("tasks=0..39"), AllOf(HasSubstr("command line: tasks: found '0..39'"),
                                                  HasSubstr("there is no such file; did you mean 0-39?")));
  EXPECT_THAT(of_assignment("tasks=0:39"), HasSubstr("did you mean 0-39?"));
  EXPECT_THAT(of_assignment("tasks=39-0"), HasSubstr("'39-0', which ends before it begins"));
  EXPECT_THAT(of_assignment("eval_tasks=tests"),
              AllOf(HasSubstr("test, train or all"), HasSubstr("did you mean test?")));
  EXPECT_THAT(of_assignment("tasks=[]"), HasSubstr("expected one task at least"));
}

}  // namespace
}  // namespace adtrain

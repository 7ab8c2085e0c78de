#include "data/hdf5/Hdf5Metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file that these lines of Python have written, where they know it as `f`.
struct Written {
  explicit Written(const std::string& lines) {
    run_python(fmt::format("with h5py.File('{}', 'w') as f:\n{}", path, lines));
  }
  TemporaryFolder folder;
  std::string path = (folder.path() / "a.hdf5").string();
  Hdf5Metadata metadata;
};

template <class Ask>
std::string complaint(const Ask& ask) {
  try {
    ask();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

/// 140 attributes of 9 KB are more than one message of the process that is asked holds.
TEST(Hdf5Metadata, SurveysGroupsWithLongAttributes) {
  Written written(R"(
    for group in range(140):
        f.create_group(str(group)).attrs['note'] = f'{group} ' + 9000 * 'x'
        f[str(group)]['actions'] = np.zeros((group + 1, 2), 'u1')
)");
  std::vector<std::string> names;
  for (int group = 0; group < 140; ++group) names.push_back(std::to_string(group));
  const auto surveyed = written.metadata.survey(written.path, names, "actions");
  ASSERT_EQ(surveyed.size(), names.size());
  for (size_t group = 0; group < names.size(); ++group) {
    EXPECT_EQ(surveyed[group].attributes.at("note"), names[group] + " " + std::string(9000, 'x'));
    EXPECT_THAT(surveyed[group].shape.value(), ElementsAre(group + 1, 2));
  }
}

TEST(Hdf5Metadata, SaysWhichGroupHasTooLongAttributes) {
  Written written(R"(
    for group in range(3):
        f.create_group(str(group))
    for attribute in range(20):
        f['1'].attrs[str(attribute)] = 60000 * 'x'
)");
  Hdf5Metadata& metadata = written.metadata;
  const auto names_it = AllOf(HasSubstr("a.hdf5: group 1: found names and attributes of 1 200 "),
                              HasSubstr("bytes as JSON; expected 1 048 576 at most: shorten them"));
  EXPECT_THAT(complaint([&] { metadata.survey(written.path, {"0", "1", "2"}, "actions"); }), names_it);
  EXPECT_THAT(complaint([&] { metadata.attributes(written.path, "1"); }), names_it);
  EXPECT_EQ(metadata.survey(written.path, {"0", "2"}, "actions").size(), 2U) << "others are read";
}

TEST(Hdf5Metadata, ListsLongNames) {
  Written written(R"(
    for group in range(5000):
        f.create_group(f'{group:0300}')
)");
  const std::vector<std::string> names = written.metadata.names(written.path, "/");
  ASSERT_EQ(names.size(), 5000U);
  for (size_t group = 0; group < names.size(); ++group)
    EXPECT_EQ(names[group], fmt::format("{:0300}", group));
}

}  // namespace
}  // namespace adtrain

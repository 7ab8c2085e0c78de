#include "base/WriteRemedy.h"

#include <cerrno>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string remedy_of(int reason, const char* folder = ".") {
  return write_remedy(std::filesystem::filesystem_error("cannot write", "runs/a/x",
                                                        std::error_code(reason, std::generic_category())),
                      folder);
}

TEST(WriteRemedy, IsThatOfTheReason) {
  for (const int reason : {ENOSPC, EDQUOT})
    EXPECT_THAT(remedy_of(reason), AllOf(HasSubstr("make room in ."), HasSubstr("are free")));
  for (const int reason : {EPERM, EACCES})
    EXPECT_THAT(remedy_of(reason), AllOf(HasSubstr("permissions"), HasSubstr("lsattr")));
  EXPECT_THAT(remedy_of(EROFS), HasSubstr("mount"));
  EXPECT_THAT(remedy_of(EFBIG), HasSubstr("ulimit -f"));
  for (const int reason : {EPERM, EACCES, EROFS, EFBIG, EIO, ENOENT})
    EXPECT_THAT(remedy_of(reason), Not(HasSubstr("make room"))) << reason;
}

TEST(WriteRemedy, APathThatIsNoneOfFoldersIsTheUsersToMend) {
  for (const int reason : {ENOENT, ENOTDIR, EEXIST, ELOOP})
    EXPECT_THAT(remedy_of(reason, "runs/a"), HasSubstr("every part of the path runs/a a folder")) << reason;
  EXPECT_THAT(remedy_of(ENAMETOOLONG, "runs/a"), HasSubstr("shorten the path runs/a"));
}

TEST(WriteRemedy, OfAFaultOfTheDeviceTheSystemsLogKnowsMore) {
  for (const int reason : {EIO, ESTALE, ENXIO})
    EXPECT_THAT(remedy_of(reason), HasSubstr("the system's log")) << reason;
}

TEST(WriteRemedy, HowMuchIsFreeIsLeftOutWhereThatIsUnknown) {
  EXPECT_EQ(remedy_of(ENOSPC, "no/such/folder"), "make room in no/such/folder");
}

}  // namespace
}  // namespace adtrain

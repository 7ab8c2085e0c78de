#include "base/HostMemory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace adtrain {
namespace {

TEST(HostMemory, IsLessThanTheHostHasAndNotNothing) {
  const int64_t available = available_host_memory();
  EXPECT_GT(available, int64_t{1} << 20);
  EXPECT_LT(available, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace adtrain

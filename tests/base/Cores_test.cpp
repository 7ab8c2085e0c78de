#include "base/Cores.h"

#include <string>

#include <gtest/gtest.h>
#include <sched.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

/// What /proc and /sys would show.
class FakeRoot : public TemporaryFolder {
 public:
  explicit FakeRoot(const std::string& groups) { write("proc/self/cgroup", groups); }
  void write(const std::string& name, const std::string& text) const {
    write_file_atomically(path() / name, text);
  }
  std::optional<int64_t> quota() const { return cpu_quota(path()); }
};

TEST(Cores, WithoutControlGroupsThereIsNoQuota) {
  const TemporaryFolder nothing;
  EXPECT_EQ(cpu_quota(nothing.path()), std::nullopt);
  const FakeRoot unlimited("0::/\n");
  EXPECT_EQ(unlimited.quota(), std::nullopt);
  unlimited.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(unlimited.quota(), std::nullopt);
}

TEST(Cores, OfAContainerWithTwoCores) {
  const FakeRoot container("0::/\n");
  container.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(container.quota(), 2);
  container.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(container.quota(), 2) << "rounded up";
  container.write("sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(container.quota(), 1);
}

TEST(Cores, TheSmallestLimitOnTheWayUpCounts) {
  const FakeRoot nested("0::/kubepods/pod1/container\n");
  nested.write("sys/fs/cgroup/kubepods/pod1/container/cpu.max", "max 100000\n");
  nested.write("sys/fs/cgroup/kubepods/pod1/cpu.max", "300000 100000\n");
  nested.write("sys/fs/cgroup/kubepods/cpu.max", "1600000 100000\n");
  EXPECT_EQ(nested.quota(), 3);
}

TEST(Cores, OfControlGroupsOfVersionOne) {
  const FakeRoot old("12:memory:/job\n4:cpu,cpuacct:/slurm/job_7\n3:cpuset:/x\n");
  old.write("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "400000\n");
  old.write("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n");
  old.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  old.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(old.quota(), 4);
}

TEST(Cores, WhatIsNoQuotaIsNone) {
  const FakeRoot odd("0::/\nnonsense\n::\n7:cpu\n");
  for (const char* text : {"", "many\n", "0 100000\n", "-5 100000\n", "100000\n", "100000 0\n"}) {
    odd.write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(odd.quota(), std::nullopt) << text;
  }
  odd.write("sys/fs/cgroup/cpu.max", "1e300 1\n");
  EXPECT_EQ(odd.quota(), 1'000'000);
}

TEST(Cores, AProcessUsesNoMoreThanItIsBoundTo) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace adtrain

#include "base/SharedMemory.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr SharedMemory::Purpose kPurpose = {
    .name = "adtrain-test", .sharers = "other tests", .advice = "test less"};

/// What a process says of its own; -1 where it ended in another way.
template <class Act>
int in_another_process(const Act& act) {
  const pid_t child = fork();
  if (child == 0) _exit(act());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

template <class Act>
std::string complaint(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(SharedMemory, IsTheSameInAProcessThatIsToldWhereItIs) {
  const SharedMemory memory(100'000, kPurpose);
  EXPECT_EQ(memory.data()[99'999], std::byte{0});
  const std::string told = memory.address().text();
  const int found = in_another_process([&] {
    const SharedMemory same(SharedMemory::Address::parse(told).value(), kPurpose);
    if (same.data() == memory.data()) return 1;
    same.data()[99'999] = std::byte{7};
    return 42;
  });
  EXPECT_EQ(found, 42);
  EXPECT_EQ(memory.data()[99'999], std::byte{7});
}

TEST(SharedMemory, IsNotTakenForOther) {
  const SharedMemory memory(5'000, kPurpose), other(5'000, kPurpose);
  const auto opened = [&](const SharedMemory::Address& address) {
    return complaint([&] { const SharedMemory same(address, kPurpose); });
  };
  EXPECT_EQ(opened(memory.address()), "none");
  SharedMemory::Address address = memory.address();
  address.file = other.file();
  EXPECT_THAT(opened(address), HasSubstr("found other memory"));
  address = memory.address();
  address.bytes = 6'000;
  EXPECT_THAT(opened(address), HasSubstr("found other memory"));
  address = memory.address();
  address.file = 0;
  EXPECT_THAT(opened(address), AllOf(HasSubstr("/fd/0: "), HasSubstr("shares with other tests")));
  address.file = 100'000;
  EXPECT_THAT(opened(address), HasSubstr("not found"));
  EXPECT_FALSE(SharedMemory::Address::parse("1/2/3/4"));
  EXPECT_FALSE(SharedMemory::Address::parse("1/2/3/4/5/6"));
  EXPECT_FALSE(SharedMemory::Address::parse(""));
}

TEST(SharedMemory, IsRefusedBeforeItIsTouched) {
  const int found = in_another_process([&] {
    const rlimit longest = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &longest);
    const std::string what = complaint([] { const SharedMemory memory(5'000, kPurpose); });
    return what.find("File too large") != std::string::npos && what.find("test less") != std::string::npos
               ? 42
               : 1;
  });
  EXPECT_EQ(found, 42);
}

TEST(SharedMemory, EndsAProcessThatWritesWhatItMayOnlyRead) {
  SharedMemory memory(5'000, kPurpose);
  memory.data()[0] = std::byte{5};
  memory.make_read_only();
  EXPECT_EQ(memory.data()[0], std::byte{5});
  EXPECT_EQ(in_another_process([&] {
              memory.data()[0] = std::byte{6};
              return 0;
            }),
            -1);
}

}  // namespace
}  // namespace adtrain

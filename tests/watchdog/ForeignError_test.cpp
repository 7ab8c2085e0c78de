#include "watchdog/ForeignError.h"

#include <filesystem>
#include <future>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "watchdog/Failure.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What is reported of the exception that `act` throws.
template <class Act>
ErrorMeaning meaning_in(const Act& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return meaning_of(error);
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(ForeignError, TheFamilyStaysWhatItIs) {
  const ErrorMeaning meaning = meaning_of(DataError("histories/x.hdf5 does not exist"));
  EXPECT_EQ(meaning.code, ExitCode::kData);
  EXPECT_EQ(meaning.error, "histories/x.hdf5 does not exist");
  EXPECT_EQ(meaning.advice, "");
}

TEST(ForeignError, HostMemoryThatIsRefusedHasACodeOfItsOwn) {
  // libtorch's allocator, the C++ library's, and a container's own bound.
  const auto by_torch = [] { at::empty({int64_t{1} << 45}, at::kFloat); };
  const auto by_new = [] { throw std::bad_alloc(); };
  const auto by_vector = [] { std::vector<double>().reserve(std::numeric_limits<size_t>::max() / 8); };
  for (const ErrorMeaning& meaning : {meaning_in(by_torch), meaning_in(by_new), meaning_in(by_vector)}) {
    EXPECT_EQ(meaning.code, ExitCode::kOutOfMemory);
    EXPECT_THAT(meaning.error,
                AllOf(HasSubstr("refused memory"), Not(HasSubstr("frame #")), Not(HasSubstr("\n"))));
    EXPECT_THAT(meaning.advice, AllOf(HasSubstr("ulimit -v"), HasSubstr("micro-batch")));
  }
  EXPECT_THAT(meaning_in(by_torch).error, HasSubstr("128.0 TiB were asked for"));
}

TEST(ForeignError, GpuMemoryHasTheSame) {
  const ErrorMeaning meaning =
      meaning_of(c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory"));
  EXPECT_EQ(meaning.code, ExitCode::kOutOfMemory);
  EXPECT_THAT(meaning.advice, HasSubstr("gradient_accumulation_steps"));
}

TEST(ForeignError, TorchsErrorsHaveNoBacktrace) {
  const ErrorMeaning meaning = meaning_in([] { at::ones({2, 3}).matmul(at::ones({2, 3})); });
  EXPECT_EQ(meaning.code, ExitCode::kUnexpected);
  EXPECT_THAT(meaning.error, AllOf(HasSubstr("shapes cannot be multiplied"), Not(HasSubstr("frame #"))));
}

TEST(ForeignError, DisksAndFoldersHaveAnAdviceOfTheirOwn) {
  const auto of = [](std::errc reason) {
    return meaning_of(std::filesystem::filesystem_error("cannot create", "runs/x/config.yaml.tmp",
                                                        std::make_error_code(reason)));
  };
  EXPECT_THAT(of(std::errc::no_space_on_device).advice, HasSubstr("make room"));
  EXPECT_THAT(of(std::errc::read_only_file_system).advice, HasSubstr("writable"));
  EXPECT_THAT(of(std::errc::permission_denied).advice, HasSubstr("writable"));
  EXPECT_EQ(of(std::errc::io_error).code, ExitCode::kEnvironment);
  EXPECT_EQ(of(std::errc::no_space_on_device).error,
            "cannot create: No space left on device [runs/x/config.yaml.tmp]");
  const ErrorMeaning meaning = meaning_in([] { write_file_atomically("/proc/nowhere/file", ""); });
  EXPECT_EQ(meaning.code, ExitCode::kEnvironment);
  EXPECT_THAT(meaning.error, AllOf(HasSubstr("/proc/nowhere"), Not(HasSubstr("filesystem error"))));
}

TEST(ForeignError, ThreadsAndFilesThatTheSystemRefusesAreLimits) {
  const ErrorMeaning meaning = meaning_of(
      std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "thread"));
  EXPECT_EQ(meaning.code, ExitCode::kEnvironment);
  EXPECT_THAT(meaning.error, HasSubstr("a limit of the system"));
  EXPECT_THAT(meaning.advice, HasSubstr("ulimit -u"));
}

TEST(ForeignError, AnythingElseIsUnexpectedAndUtf8) {
  const ErrorMeaning meaning =
      meaning_of(std::runtime_error("bytes \xff\xc3 and " + std::string(100'000, 'x')));
  EXPECT_EQ(meaning.code, ExitCode::kUnexpected);
  EXPECT_THAT(meaning.error, HasSubstr("bytes ?? and xxx"));
  EXPECT_LT(meaning.error.size(), 5000U);
}

TEST(ForeignError, OneProcessAndRanksReportTheSame) {
  const std::bad_alloc error;
  const Error alone = as_error(error);
  const Failure of_a_rank = Failure::of(error, RankIdentity::of_this_process(1, 2));
  EXPECT_EQ(alone.exit_code(), of_a_rank.code);
  EXPECT_EQ(alone.what(), of_a_rank.error + "; " + of_a_rank.advice);
}

TEST(ForeignError, OutOfMemoryIsToldFromOthersWhicheverLibraryMeetsIt) {
  EXPECT_TRUE(is_out_of_memory(c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory")));
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  try {
    at::empty({int64_t{1} << 50}, at::kByte);
    FAIL() << "a pebibyte";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
  }
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling")));
  EXPECT_EQ(meaning_of(c10::Error({__func__, __FILE__, __LINE__}, "CUDA error: out of memory")).code,
            ExitCode::kOutOfMemory);
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("CUDA error: an illegal memory access was encountered")));
}

}  // namespace
}  // namespace adtrain

#include "evaluation/NpyFile.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(NpyFile, MatchesTheFormatByteByByte) {
  const std::string bytes = npy_bytes(at::tensor({1.0F, -2.5F, 3.0F, 0.0F, 5.0F, 6.0F}).view({2, 3}));
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }";
  expected.append(127 - expected.size(), ' ');
  expected += '\n';
  expected.append(
      "\x00\x00\x80\x3f\x00\x00\x20\xc0\x00\x00\x40\x40\x00\x00\x00\x00\x00\x00\xa0\x40\x00\x00\xc0\x40", 24);
  EXPECT_EQ(bytes, expected);
}

TEST(NpyFile, DataAreAlignedAndComplete) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1}, {3, 1}, {123456, 1, 1, 1, 1, 2}, {0, 4}}) {
    const at::Tensor numbers = at::zeros(shape);
    EXPECT_EQ((npy_bytes(numbers).size() - numbers.nbytes()) % 64, 0U);
  }
}

TEST(NpyFile, ATransposedTensorIsWrittenRowByRow) {
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_EQ(npy_bytes(matrix.t()), npy_bytes(matrix.t().contiguous()));
}

std::string written_by_numpy(const std::string& shape) {
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  bytes.append(127 - bytes.size(), ' ');
  return bytes + '\n';
}

TEST(NpyFile, WhatIsWrittenIsReadBackBitForBit) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1}, {3, 1, 5}, {0, 4}, {4, 0}, {}}) {
    const at::Tensor numbers = at::randn(shape);
    const at::Tensor read = tensor_of_npy(npy_bytes(numbers), "file");
    EXPECT_EQ(read.sizes(), numbers.sizes());
    EXPECT_EQ(npy_bytes(read), npy_bytes(numbers));
  }
  const std::string data = npy_bytes(at::tensor({1.0F, -0.0F, 3.0F})).substr(128);
  EXPECT_EQ(npy_bytes(tensor_of_npy(written_by_numpy("(3,)") + data, "file")).substr(128), data);
}

TEST(NpyFile, WhatIsCutOrOfAnotherTypeIsDamaged) {
  const std::string whole = npy_bytes(at::ones({2, 3}));
  for (const size_t length : {size_t{0}, size_t{9}, size_t{100}, whole.size() - 4, whole.size() - 1}) {
    EXPECT_THAT(
        [&] { tensor_of_npy(whole.substr(0, length), "a/file.npy"); },
        ThrowsMessage<DataError>(AllOf(HasSubstr("a/file.npy is damaged: "), HasSubstr("evaluate again"))))
        << length;
  }
  std::string doubles = whole, other = whole;
  doubles.replace(doubles.find("<f4"), 3, "<f8");
  other[0] = 'N';
  const std::string data(24, '\0');
  for (const std::string& bytes :
       {doubles, other, whole + "x", whole + "four", written_by_numpy("(2, -3)") + data,
        written_by_numpy("(2, x)") + data, written_by_numpy("()") + data,
        written_by_numpy("(4294967296, 4294967296, 6)") + data,
        written_by_numpy("(99999999999999999999,)") + data}) {
    EXPECT_THROW(tensor_of_npy(bytes, "file"), DataError) << bytes.substr(10, 80);
  }
}

}  // namespace
}  // namespace adtrain

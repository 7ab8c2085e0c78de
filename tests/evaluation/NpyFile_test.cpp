#include "evaluation/NpyFile.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

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

}  // namespace
}  // namespace adtrain

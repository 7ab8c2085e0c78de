#include "kernels/TokenStreams.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

struct StreamsCase {
  std::string name;
  TokenStreams streams;
};

std::vector<StreamsCase> every_kind_of_streams() {
  const at::Tensor padding = at::tensor({0, 3, 5}, at::kInt);
  const at::Tensor segments = at::tensor({0, 0, 0, 3, 3, 3, 3, 0, 1, 1, 1, 1, 1, 6}, at::kInt).view({2, 7});
  return {{"one", {.context = 7}},
          {"two", {.context = 7, .queries = 7}},
          {"two, few queries", {.context = 7, .queries = 2}},
          {"one, padded", {.context = 7, .first = padding}},
          {"two, padded", {.context = 7, .queries = 2, .first = padding}},
          {"packed", {.context = 7, .segments = TokenSegments::of(segments)}}};
}

/// Of the context's slots; a query's own slot stands for the query itself.
bool reads(const TokenStreams& streams, int64_t row, int64_t token, int64_t slot) {
  const int64_t own = token < streams.context ? token : token - streams.queries;
  if (slot >= own) return slot == own;
  if (streams.packed()) return slot >= streams.segments.first[row][token].item<int>();
  return !streams.padded() || slot >= streams.first[row].item<int>();
}

TEST(TokenStreams, MasksSayWhoReadsWhom) {
  for (const auto& [name, streams] : every_kind_of_streams()) {
    SCOPED_TRACE(name);
    const at::Tensor mask = streams.with_masks(at::empty({0}, at::kBFloat16)).mask;
    EXPECT_EQ(mask.scalar_type(), at::kFloat);
    const int64_t rows = streams.padded() ? 3 : streams.packed() ? 2 : 1;
    const at::Tensor of_rows = mask.expand({rows, 1, streams.tokens(), streams.context});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t token = 0; token < streams.tokens(); ++token) {
        for (int64_t slot = 0; slot < streams.context; ++slot) {
          EXPECT_EQ(of_rows[row][0][token][slot].item<float>(),
                    reads(streams, row, token, slot) ? 0.0F : -INFINITY)
              << "row " << row << ", token " << token << ", slot " << slot;
        }
      }
    }
  }
}

TEST(TokenStreams, WithMasksAreWhatTheyWere) {
  for (const auto& [name, streams] : every_kind_of_streams()) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(streams.mask.defined());
    const TokenStreams masked = streams.with_masks(at::empty({0}));
    EXPECT_EQ(masked.tokens(), streams.tokens());
    EXPECT_EQ(masked.first_query_slot(), streams.first_query_slot());
    EXPECT_TRUE(masked.first.is_same(streams.first));
    EXPECT_TRUE(masked.segments.end.is_same(streams.segments.end));
    EXPECT_FALSE(masked.mask_over_all_tokens.defined()) << "attention on a GPU alone takes it";
  }
}

}  // namespace
}  // namespace adtrain

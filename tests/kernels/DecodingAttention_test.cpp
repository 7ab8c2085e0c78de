// Attention over kept keys and values by our own kernels, on a GPU or emulated, against float64.

#include "kernels/attention/decoding/DecodingAttention.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "kernels/KernelSpeed.h"
#include "kernels/attention/decoding/KeyValueRing.h"
#include "kernels/norm/NormEpsilon.h"

namespace adtrain {
namespace {

using kernels::decode_attention;
using kernels::DistancePenalty;
using kernels::KeyValueRing;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  int64_t sequences, heads, head_size, window;
  int64_t tokens;  ///< with the newest
  at::ScalarType type = at::kBFloat16;
  DistancePenalty penalty = DistancePenalty::kNone;
  double query_scale = 1;
};

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

/// Queries, keys and values of one token (3, B, heads, 1, head size): views of a fused projection.
at::Tensor random_token(const Case& tried) {
  const auto options = at::TensorOptions().device(testing::fused_device()->device).dtype(tried.type);
  const at::Tensor projected = at::randn({tried.sequences, 1, 3, tried.heads, tried.head_size}, options);
  projected.select(2, 0).mul_(tried.query_scale);
  return projected.permute({2, 0, 3, 1, 4});
}

/// A ring in which all tokens but the newest are, and what has left it is not.
KeyValueRing random_ring(const Case& tried, const at::Tensor& key) {
  KeyValueRing ring = KeyValueRing::like(key, tried.window);
  ring.keys.normal_();
  ring.values.normal_();
  ring.key_norms.copy_(ring.keys.to(at::kFloat).square().sum(-1).amax(-1));
  for (const at::Tensor& kept : {ring.keys, ring.values})
    if (tried.tokens <= tried.window)
      kept.narrow(2, tried.tokens - 1, tried.window - tried.tokens + 1).fill_(kNaN);
  return ring;
}

KeyValueRing copy_of(const KeyValueRing& ring) {
  return {ring.keys.clone(), ring.values.clone(), ring.key_norms.clone(), ring.arrivals.clone()};
}

/// Of each place how many tokens came after the one that it keeps.
at::Tensor ages_of(const Case& tried, int64_t tokens) {
  const at::Tensor place = at::arange(std::min(tokens, tried.window), at::kLong);
  return at::remainder((tokens - 1) % tried.window - place, tried.window)
      .to(testing::fused_device()->device, at::kDouble);
}

/// The definition, in float64, where the ring has the newest token already.
at::Tensor attended_plainly(const Case& tried, const at::Tensor& query, const KeyValueRing& ring,
                            int64_t tokens) {
  const auto kept = [&](const at::Tensor& all) {
    return all.narrow(2, 0, std::min(tokens, tried.window)).to(at::kDouble);
  };
  at::Tensor scores = at::matmul(query.to(at::kDouble), kept(ring.keys).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(tried.head_size));
  if (tried.penalty == DistancePenalty::kAlibi) {
    const at::Tensor head = at::arange(1, tried.heads + 1, scores.options());
    const at::Tensor slope = at::exp2(head * (-8.0 / static_cast<double>(tried.heads)));
    scores = scores - slope.view({-1, 1, 1}) * ages_of(tried, tokens);
  }
  return at::matmul(at::softmax(scores, -1), kept(ring.values)).transpose(1, 2).flatten(2);
}

at::Tensor counted(int64_t tokens) {
  return at::full({1}, tokens, at::TensorOptions(at::kLong).device(testing::fused_device()->device));
}

class DecodingAttention : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
  }
};

TEST_P(DecodingAttention, IsTheDefinitionAndKeepsTheNewestToken) {
  const Case& tried = GetParam();
  const double tolerance = tried.type == at::kHalf ? 4e-4 : 3e-3;
  KeyValueRing ring;
  for (int64_t tokens = tried.tokens; tokens < tried.tokens + 3; ++tokens) {
    SCOPED_TRACE(fmt::format("{} tokens", tokens));
    const at::Tensor token = random_token(tried);
    if (!ring.keys.defined()) ring = random_ring(tried, token[1]);
    const KeyValueRing expected_ring = copy_of(ring);
    const int64_t place = (tokens - 1) % tried.window;
    expected_ring.keys.narrow(2, place, 1).copy_(token[1]);
    expected_ring.values.narrow(2, place, 1).copy_(token[2]);
    const at::Tensor norms =
        ring.key_norms.maximum(token[1].to(at::kFloat).square().sum(-1).squeeze(-1)).clone();

    const at::Tensor found =
        decode_attention(token[0], token[1], token[2], ring, counted(tokens), tried.penalty);
    const at::Tensor expected = attended_plainly(tried, token[0], expected_ring, tokens);
    ASSERT_EQ(found.sizes(), expected.sizes());
    EXPECT_EQ(found.scalar_type(), tried.type);
    EXPECT_LT(error_of(found, expected), tolerance);
    EXPECT_TRUE(at::allclose(ring.keys, expected_ring.keys, 0, 0, /*equal_nan=*/true));
    EXPECT_TRUE(at::allclose(ring.values, expected_ring.values, 0, 0, /*equal_nan=*/true));
    if (tried.penalty == DistancePenalty::kAlibi) {
      EXPECT_TRUE(at::allclose(ring.key_norms, norms, 1e-5));
    }
    // The newest token is there now, as the same; its own place is written again.
    EXPECT_TRUE(at::equal(
        decode_attention(token[0], token[1], token[2], ring, counted(tokens), tried.penalty), found))
        << "not the same on repeat";
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const DistancePenalty penalty : {DistancePenalty::kNone, DistancePenalty::kAlibi}) {
      all.push_back({1, 1, 64, 130, 1, type, penalty});       // the newest alone
      all.push_back({1, 2, 64, 300, 77, type, penalty});      // not full
      all.push_back({1, 2, 64, 300, 300, type, penalty});     // full
      all.push_back({2, 3, 64, 270, 1234, type, penalty});    // wrapped
      all.push_back({1, 8, 64, 700, 1500, type, penalty});    // of some heads not all keys count
      all.push_back({1, 1, 64, 2100, 2090, type, penalty});   // a large cluster
      all.push_back({1, 4, 64, 260, 400, type, penalty, 4});  // one key has nearly all weight
      all.push_back({9, 2, 32, 37, 36, type, penalty});
      all.push_back({2, 2, 32, 513, 9999, type, penalty});
      all.push_back({1, 3, 128, 140, 139, type, penalty});
      all.push_back({17, 2, 128, 5, 12, type, penalty});
      all.push_back({1, 1, 64, 1, 7, type, penalty});
      // More heads than are few on any GPU, shared and not.
      all.push_back({270, 1, 64, 280, 279, type, penalty});
      all.push_back({90, 3, 32, 100, 1234, type, penalty});
    }
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Case>& tested) {
  const Case& tried = tested.param;
  return fmt::format("{}x{}_heads_of_{}_window_{}_tokens_{}_{}_{}{}", tried.sequences, tried.heads,
                     tried.head_size, tried.window, tried.tokens, c10::toString(tried.type),
                     tried.penalty == DistancePenalty::kAlibi ? "alibi" : "plain",
                     tried.query_scale == 1 ? "" : "_long_queries");
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodingAttention, ::testing::ValuesIn(cases()), name_of);

/// Where a query, a key and a value are tensors of their own, as after norms and rotary positions.
TEST_F(DecodingAttention, ReadsTensorsApart) {
  const Case tried = {3, 2, 64, 150, 400};
  const at::Tensor token = random_token(tried);
  const KeyValueRing ring = random_ring(tried, token[1]), other = copy_of(ring);
  const at::Tensor found =
      decode_attention(token[0], token[1], token[2], ring, counted(tried.tokens), tried.penalty);
  EXPECT_TRUE(at::equal(decode_attention(token[0].contiguous(), token[1], token[2].contiguous(), other,
                                         counted(tried.tokens), tried.penalty),
                        found));
}

/// LayerNorm and RMSNorm of queries and keys: as if they had been normed and rounded before.
TEST_F(DecodingAttention, NormsQueryAndKey) {
  for (const bool layer : {true, false}) {
    for (const auto& [head_size, type] : {std::pair<int64_t, at::ScalarType>{32, at::kBFloat16},
                                          {64, at::kBFloat16},
                                          {64, at::kHalf},
                                          {128, at::kHalf}}) {
      SCOPED_TRACE(fmt::format("{} of heads of {} in {}", layer ? "LayerNorm" : "RMSNorm", head_size,
                               c10::toString(type)));
      const Case tried = {2, 3, head_size, 300, 777, type, DistancePenalty::kAlibi, 3};
      const at::Tensor token = random_token(tried);
      const auto parameters = [&]() -> kernels::NormWeights {
        const auto random = [&](double mean) {
          return at::randn({tried.head_size}, token.options()).mul_(0.3).add_(mean);
        };
        return {random(1), layer ? random(0) : at::Tensor()};
      };
      const kernels::HeadNorms norms = {parameters(), parameters()};
      const auto normed = [&](const at::Tensor& heads, const kernels::NormWeights& norm) {
        const at::Tensor x = heads.to(at::kFloat), weight = norm.weight.to(at::kFloat);
        return (layer ? at::layer_norm(x, weight.sizes(), weight, norm.bias.to(at::kFloat), kNormEpsilon)
                      : at::rms_norm(x, weight.sizes(), weight, kNormEpsilon))
            .to(type);
      };
      const KeyValueRing ring = random_ring(tried, token[1]), other = copy_of(ring);
      const at::Tensor found =
          decode_attention(token[0], token[1], token[2], ring, counted(tried.tokens), tried.penalty, norms);
      const at::Tensor query = normed(token[0], norms.queries), key = normed(token[1], norms.keys);
      const at::Tensor expected =
          decode_attention(query, key, token[2].contiguous(), other, counted(tried.tokens), tried.penalty);
      EXPECT_GT(error_of(key, token[1].to(at::kDouble)), 0.1);
      EXPECT_LT(error_of(ring.keys, other.keys.to(at::kDouble)), 1e-4);
      EXPECT_LT(error_of(found, expected.to(at::kDouble)), type == at::kHalf ? 1e-3 : 8e-3);
    }
  }
}

/// NaN tells what is read: where the lengths of query and keys say that ALiBi leaves the older half no
/// weight, none of it; where a length is no number, all.
TEST_F(DecodingAttention, NegligibleKeysAreNotRead) {
  constexpr int64_t kReadHeads = 4;  // of which the slopes are 1/2 to 1/16
  const Case tried = {2, 8, 64, 2000, 5000, at::kBFloat16, DistancePenalty::kAlibi};
  const at::Tensor token = random_token(tried);
  const KeyValueRing ring = random_ring(tried, token[1]);
  const KeyValueRing whole = copy_of(ring);
  const at::Tensor old = ages_of(tried, tried.tokens).ge(1000.0).nonzero().flatten();
  ring.keys.index_fill_(2, old, kNaN);
  ring.values.index_fill_(2, old, kNaN);
  const auto decoded = [&](const KeyValueRing& of) {
    return decode_attention(token[0], token[1], token[2], of, counted(tried.tokens), tried.penalty)
        .unflatten(-1, {tried.heads, tried.head_size});
  };
  const at::Tensor expected = decoded(whole), found = decoded(ring);
  EXPECT_TRUE(at::equal(found.narrow(2, 0, kReadHeads), expected.narrow(2, 0, kReadHeads)));
  EXPECT_TRUE(found.select(2, tried.heads - 1).isnan().all().item<bool>());
  ring.key_norms.fill_(kNaN);
  EXPECT_TRUE(decoded(ring).isnan().all().item<bool>());
  EXPECT_TRUE(ring.key_norms.isnan().all().item<bool>()) << "it is forgotten";
}

/// Where all keys are the query, no score is below the bound, and age alone takes weight away.
TEST_F(DecodingAttention, KeysAtTheBoundAreReadAsLongAsTheyCount) {
  const Case tried = {1, 8, 64, 700, 1500, at::kBFloat16, DistancePenalty::kAlibi};
  const at::Tensor token = random_token(tried);
  token[1].copy_(token[0]);
  const KeyValueRing ring = random_ring(tried, token[1]);
  ring.keys.copy_(token[1].expand_as(ring.keys));
  ring.key_norms.zero_();  // the newest key says it
  const at::Tensor found =
      decode_attention(token[0], token[1], token[2], ring, counted(tried.tokens), tried.penalty);
  EXPECT_LT(error_of(found, attended_plainly(tried, token[0], ring, tried.tokens)), 3e-3);
}

/// Where all scores are far below 0, keys that are not there do not count as 0.
TEST_F(DecodingAttention, ScoresMayBeFarBelowZero) {
  for (const int64_t tokens : {1, 3, 70}) {
    const Case tried = {2, 2, 64, 300, tokens};
    const at::Tensor token = random_token(tried);
    token[0].fill_(5);
    token[1].fill_(-5);  // scores of -200
    const KeyValueRing ring = random_ring(tried, token[1]);
    ring.keys.fill_(-5);
    const KeyValueRing expected_ring = copy_of(ring);
    expected_ring.values.narrow(2, tokens - 1, 1).copy_(token[2]);
    const at::Tensor found =
        decode_attention(token[0], token[1], token[2], ring, counted(tokens), tried.penalty);
    EXPECT_LT(error_of(found, attended_plainly(tried, token[0], expected_ring, tokens)), 3e-3) << tokens;
  }
}

TEST(DecodingSplits, FewHeadsAreSharedAndManyAreNot) {
  const auto splits = [](int sequences, int heads, int window) {
    constexpr int kProcessors = 132;
    return kernels::decoding_splits({sequences, heads, 64, window, kernels::ShortType::kBFloat16, false},
                                    kProcessors);
  };
  EXPECT_EQ(splits(1024, 8, 4096), 1);
  EXPECT_GE(splits(64, 16, 8192), 2);
  EXPECT_EQ(splits(1, 8, 1000), 8);
}

TEST(DecodingCluster, HasTheThreadBlocksThatThereIsRoomFor) {
  constexpr int kProcessors = 132;
  const auto shape = [](int sequences, int heads, int window) {
    return kernels::DecodingShape{sequences, heads, 64, window, kernels::ShortType::kBFloat16, false};
  };
  const auto cluster = [&](int sequences, int heads, int window) {
    return kernels::decoding_cluster(shape(sequences, heads, window), kProcessors);
  };
  EXPECT_EQ(cluster(1, 16, 1024), 4);
  EXPECT_EQ(cluster(1, 16, 200), 2) << "of 128 keys each";
  EXPECT_EQ(cluster(2, 32, 1024), 2);
  EXPECT_EQ(cluster(8, 32, 1024), 1);
  EXPECT_EQ(cluster(8, 32, 4096), 4) << "longer windows, more thread blocks";
  EXPECT_EQ(cluster(1, 8, 8192), 8);
  EXPECT_EQ(kernels::decoding_early_keys(shape(1, 32, 4096), kProcessors), 1024);
  EXPECT_EQ(kernels::decoding_early_keys(shape(8, 16, 4096), kProcessors), 0);
  EXPECT_TRUE(kernels::has_few_rings(shape(8, 32, 4096), kProcessors));
  EXPECT_FALSE(kernels::has_few_rings(shape(9, 32, 4096), kProcessors));
}

/// For people.
TEST(DecodingAttentionSpeed, DISABLED_GigabytesASecond) {
  const auto device = testing::fused_device();
  if (!device || device->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  constexpr double kMegabyte = 1e6;
  for (const auto& [sequences, heads, window] : {std::array<int64_t, 3>{1024, 8, 4096},
                                                 {64, 16, 8192},
                                                 {1, 8, 4096},
                                                 {8, 16, 8192},
                                                 {8, 16, 2048},
                                                 {8, 32, 1024},
                                                 {8, 32, 4096},
                                                 {1, 32, 8192}}) {
    const Case tried = {sequences, heads, 64, window, 3 * window};
    const at::Tensor token = random_token(tried);
    KeyValueRing ring = KeyValueRing::like(token[1], window);
    ring.keys.normal_();
    ring.values.normal_();
    ring.key_norms.copy_(
        at::linalg_vector_norm(ring.keys, 2, at::IntArrayRef({3}), false, at::kFloat).square().amax(-1));
    const at::Tensor tokens = counted(tried.tokens);
    const double bytes = 2 * static_cast<double>(ring.keys.nbytes());
    const auto print = [&](const char* what, double microseconds) {
      std::cout << fmt::format("{} x {} heads of 64, {} keys: {} {:.0f} us, {:.0f} GB/s", sequences, heads,
                               window, what, microseconds, bytes / microseconds * kMegabyte / 1e9)
                << std::endl;
    };
    print("a copy of keys to values", testing::microseconds([&] { ring.values.copy_(ring.keys); }));
    for (const DistancePenalty penalty : {DistancePenalty::kNone, DistancePenalty::kAlibi}) {
      print(penalty == DistancePenalty::kAlibi ? "ours with ALiBi, as if all were read," : "ours",
            testing::microseconds(
                [&] { (void)decode_attention(token[0], token[1], token[2], ring, tokens, penalty); }));
    }
    print("libtorch's", testing::microseconds([&] {
            (void)at::scaled_dot_product_attention(token[0], ring.keys, ring.values);
          }));
  }
}

}  // namespace
}  // namespace adtrain

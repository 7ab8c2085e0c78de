#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/FusedBlockCase.h"

/// Shapes and types for which the kernels of attention by itself are compared with float64.
namespace adtrain::testing {

/// How queries, keys and values lie in the projection's output.
enum class Lying {
  kByThirds,  ///< in one matrix
  kApart,     ///< queries of the last rows in one matrix, keys and values in another
  kWithRope   ///< by heads in one matrix, with rotary positions
};

struct MultiheadAttentionCase {
  FusedBlockCase block;
  Lying lying = Lying::kByThirds;
  at::ScalarType type = at::kBFloat16;
  double gradient = 1;    ///< the deviation of the output's gradient, as a loss scale leaves it
  double own_values = 1;  ///< the deviation of the values of a second stream's queries
};

inline std::string name_of(const MultiheadAttentionCase& tried) {
  static const char* const kNames[] = {"", "_apart", "_turning"};
  std::string name = name_of(tried.block) + kNames[static_cast<int>(tried.lying)];
  if (tried.type == at::kHalf) name += "_fp16";
  if (tried.gradient != 1) name += tried.gradient < 1 ? "_small_gradient" : "_large_gradient";
  if (tried.own_values != 1) name += "_long_own_values";
  return name;
}

inline double value_tolerance(const MultiheadAttentionCase& tried) {
  return (tried.type == at::kHalf ? 0.25 : 1.0) * value_tolerance(tried.block);
}
inline double gradient_tolerance(const MultiheadAttentionCase& tried) {
  return (tried.type == at::kHalf ? 0.25 : 1.0) * gradient_tolerance(tried.block);
}

/// The same in fp16, with gradients as small and as large as loss scales make them; steep ones as they are,
/// as those of queries and keys would be too large for fp16, and those of one query not small, as those of
/// its many keys and values would be below fp16's normal numbers. What is in fp16 already is left out.
inline std::vector<MultiheadAttentionCase> in_fp16(std::vector<MultiheadAttentionCase> cases) {
  std::erase_if(cases, [](const MultiheadAttentionCase& tried) { return tried.type == at::kHalf; });
  for (size_t k = 0; k < cases.size(); ++k) {
    MultiheadAttentionCase& tried = cases[k];
    tried.type = at::kHalf;
    const double scale = std::array{1.0, 0x1p-9, 0x1p10}[k % 3];
    if (!tried.block.steep() && (tried.block.shape.rows > 1 || scale > 1)) tried.gradient = scale;
  }
  return cases;
}

/// Sequences that would fit in shared memory, which in fp16 stream nevertheless; in bf16.
inline std::vector<MultiheadAttentionCase> short_streaming_cases() {
  return {{{{3, 33, 33, 128, 8, true}, 0.1}},
          {{{2, 240, 240, 64, 4, true}, 0.1}},
          {{{2, 101, 37, 64, 2, true}, 0.0}, Lying::kApart},
          {{{2, 80, 1, 32, 2, true}, 0.1}, Lying::kApart},
          {{{1, 130, 130, 64, 4, true}, 0.1}, Lying::kWithRope},
          {{{2, 50, 100, 96, 3, true, 50}, 0.1}},
          {{{2, 70, 140, 64, 4, true, 70}, 0.0}, Lying::kWithRope},
          {{{1, 40, 40, 128, 8, true}, 0.1, 4.0}},
          {{{4, 50, 68, 128, 8, true, 18}, 0.1, 1.0, /*padded=*/true}},
          {{{4, 70, 70, 64, 4, true}, 0.0, 1.0, /*padded=*/true}}};
}

/// Each way of lying with each of these, one after the other.
inline std::vector<MultiheadAttentionCase> multihead_attention_cases(
    const std::vector<FusedBlockCase>& blocks) {
  std::vector<MultiheadAttentionCase> all;
  for (const FusedBlockCase& block : blocks) {
    all.push_back({block, static_cast<Lying>(all.size() % 3)});
  }
  return all;
}

/// For a GPU.
inline std::vector<FusedBlockCase> wide_block_cases() {
  std::vector<FusedBlockCase> all;
  for (const double dropout : {0.0, 0.1}) {
    for (const bool causal : {true, false}) {
      all.push_back({{5, 240, 240, 128, 8, causal}, dropout});
      all.push_back({{5, 240, 240, 128, 4, causal}, dropout});
      all.push_back({{300, 80, 80, 128, 16, causal}, dropout});
      all.push_back({{5, 240, 1, 128, 8, causal}, dropout});
      all.push_back({{3, 256, 256, 256, 8, causal}, dropout});
      all.push_back({{4, 101, 37, 96, 6, causal}, dropout});
      all.push_back({{7, 33, 33, 96, 3, causal}, dropout});
      all.push_back({{2, 256, 17, 32, 1, causal}, dropout});
      all.push_back({{3, 7, 3, 128, 16, causal}, dropout});
      all.push_back({{1, 1, 1, 128, 4, causal}, dropout});
    }
    all.push_back({{3, 240, 240, 128, 8, true}, dropout, 4.0});

    all.push_back({{5, 240, 480, 128, 8, true, 240}, dropout});
    all.push_back({{5, 240, 240, 128, 8, true, 240}, dropout});
    all.push_back({{300, 80, 160, 128, 16, true, 80}, dropout});
    all.push_back({{300, 80, 80, 128, 4, true, 80}, dropout});
    all.push_back({{3, 256, 512, 256, 8, true, 256}, dropout});
    all.push_back({{4, 101, 1, 96, 6, true, 101}, dropout});
    all.push_back({{4, 101, 137, 96, 3, true, 101}, dropout});
    all.push_back({{7, 33, 66, 64, 2, true, 33}, dropout});
    all.push_back({{2, 256, 17, 32, 1, true, 256}, dropout});
    all.push_back({{3, 250, 500, 128, 16, true, 250}, dropout});
    all.push_back({{3, 7, 3, 128, 8, true, 7}, dropout});
    all.push_back({{1, 1, 2, 128, 4, true, 1}, dropout});
    all.push_back({{3, 240, 480, 128, 8, true, 240}, dropout, 4.0});
  }
  for (const FusedBlockCase& padded : padded_block_cases()) {
    all.push_back(padded);
    all.back().shape.width *= 2;
    all.back().shape.heads *= 2;
  }
  return all;
}

/// Queries and keys that are rotated before kernels stream them; for the whole operation alone.
inline std::vector<MultiheadAttentionCase> rotated_streaming_cases() {
  std::vector<MultiheadAttentionCase> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    all.push_back({{{1, 130, 130, 128, 2, true}, 0.1}, Lying::kWithRope, type});
    all.push_back({{{2, 200, 1, 64, 1, true}, 0.0}, Lying::kWithRope, type});
    all.push_back({{{1, 270, 100, 64, 2, true}, 0.1}, Lying::kWithRope, type});
    all.push_back({{{2, 70, 140, 64, 1, true, 70}, 0.1}, Lying::kWithRope, type});
    all.push_back({{{1, 90, 50, 64, 1, true, 60}, 0.1}, Lying::kWithRope, type});
    all.push_back({{{1, 270, 270, 32, 2, true}, 0.1}, Lying::kWithRope, type});
  }
  for (const MultiheadAttentionCase& tried : in_fp16(short_streaming_cases()))
    if (tried.lying == Lying::kWithRope) all.push_back(tried);
  return all;
}

/// Two streams whose keys and values stream by, for a GPU.
inline std::vector<MultiheadAttentionCase> two_stream_cases(double dropout) {
  return {{{{2, 1024, 2048, 768, 12, true, 1024}, dropout}},
          {{{2, 1024, 1024, 768, 12, true, 1024}, dropout}, Lying::kApart},
          {{{2, 400, 600, 128, 2, true, 300}, dropout}, Lying::kApart},
          {{{3, 321, 642, 128, 2, true, 321}, dropout}},  // of the pass without the last key 320
          {{{2, 700, 1000, 192, 3, true, 500}, dropout}},
          {{{2, 300, 100, 128, 4, true, 200}, dropout}},
          {{{2, 90, 1, 128, 2, true, 90}, dropout}},
          {{{3, 1, 2, 64, 1, true, 1}, dropout}},
          {{{2, 300, 600, 128, 2, true, 300}, dropout}, Lying::kByThirds, at::kHalf, 1, 100},
          {{{2, 515, 1030, 128, 2, true, 515}, dropout, 4.0}},
          {{{2, 530, 1060, 128, 2, true, 530}, dropout, 12.0}}};
}

/// Sequences that begin with padding, whose keys and values stream by, as compressed context has them.
inline std::vector<MultiheadAttentionCase> padded_streaming_cases(double dropout) {
  std::vector<MultiheadAttentionCase> all = {{{{7, 1028, 1028, 768, 12, true}, dropout}},
                                             {{{7, 1028, 1, 768, 12, true}, dropout}, Lying::kApart},
                                             {{{5, 700, 700, 128, 4, true}, dropout}},
                                             {{{5, 515, 300, 128, 2, true}, dropout, 12.0}},
                                             {{{7, 1028, 1541, 768, 12, true, 513}, dropout}},
                                             {{{7, 1028, 513, 768, 12, true, 513}, dropout}, Lying::kApart},
                                             {{{5, 404, 605, 128, 4, true, 201}, dropout}},
                                             {{{5, 321, 481, 128, 2, true, 160}, dropout, 4.0}}};
  for (MultiheadAttentionCase& padded : all) padded.block.padded = true;
  return all;
}

/// Likewise of attention that is long.
inline std::vector<MultiheadAttentionCase> streaming_attention_cases() {
  std::vector<MultiheadAttentionCase> all;
  for (const double dropout : {0.0, 0.1}) {
    all.push_back({{{2, 1024, 1024, 768, 12, true}, dropout}});
    all.push_back({{{2, 1000, 1000, 768, 12, true}, dropout}});
    all.push_back({{{70, 300, 300, 128, 2, true}, dropout}});
    all.push_back({{{3, 129, 129, 192, 3, true}, dropout}});
    all.push_back({{{5, 33, 33, 128, 2, true}, dropout}});  // fewer rows than a tile has
    all.push_back({{{2, 2048, 2048, 64, 1, true}, dropout}});
    all.push_back({{{2, 1024, 1, 768, 12, true}, dropout}, Lying::kApart});
    all.push_back({{{3, 4096, 4096, 768, 12, true}, dropout}});  // in two groups of heads
    all.push_back({{{2, 777, 500, 128, 2, true}, dropout}});
    all.push_back({{{2, 520, 520, 128, 4, true}, dropout}});
    all.push_back({{{5, 718, 718, 64, 4, true}, dropout}});
    all.push_back({{{5, 718, 1, 64, 4, true}, dropout}, Lying::kApart});
    all.push_back({{{3, 515, 515, 32, 2, true}, dropout, 12.0}});
    all.push_back({{{3, 400, 700, 64, 4, true, 300}, dropout}});
    all.push_back({{{2, 515, 515, 128, 2, true}, dropout, 4.0}});
    all.push_back({{{2, 530, 530, 128, 2, true}, dropout, 12.0}});
    all.push_back({{{1, 16384, 16384, 64, 1, true}, dropout}});
    for (const MultiheadAttentionCase& of_two : two_stream_cases(dropout)) all.push_back(of_two);
    for (const MultiheadAttentionCase& padded : padded_streaming_cases(dropout)) all.push_back(padded);
    for (MultiheadAttentionCase alibi : {MultiheadAttentionCase{{{2, 4096, 4096, 512, 8, true}, dropout}},
                                         {{{2, 1000, 1000, 768, 12, true}, dropout}},
                                         {{{3, 900, 500, 128, 2, true}, dropout}},
                                         {{{2, 1500, 1, 256, 4, true}, dropout}, Lying::kApart},
                                         {{{2, 700, 700, 128, 4, true}, dropout}},
                                         {{{2, 700, 700, 64, 4, true}, dropout}},
                                         {{{1, 16384, 16384, 64, 1, true}, dropout}},
                                         {{{2, 1100, 1100, 128, 2, true}, dropout, 4.0}},
                                         {{{1, 1100, 1100, 128, 2, true}, dropout, 12.0}}}) {
      alibi.block.alibi = true;
      all.push_back(alibi);
    }
    for (MultiheadAttentionCase packed : {MultiheadAttentionCase{{{3, 4096, 4096, 512, 8, true}, dropout}},
                                          {{{5, 1000, 1000, 256, 4, true}, dropout}},
                                          {{{3, 900, 500, 128, 2, true}, dropout}},
                                          {{{4, 700, 700, 128, 4, true}, dropout}},
                                          {{{4, 700, 700, 64, 4, true}, dropout}},
                                          {{{3, 1100, 1100, 128, 2, true}, dropout, 4.0}},
                                          {{{3, 600, 600, 128, 2, true}, dropout, 12.0}}}) {
      packed.block.packed = true;
      all.push_back(packed);
      packed.block.alibi = true;
      all.push_back(packed);
    }
  }
  return all;
}

}  // namespace adtrain::testing

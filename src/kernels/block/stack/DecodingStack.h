#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/TensorMap.h"
#include "kernels/quantised/QuantisedKernels.h"

/// A step of decoding through all blocks of a network in one kernel: of few rows that grow by one token, with
/// weights of 4 or 8 bits, on GPUs of compute capability 9.0. One kernel for each product begins when the one
/// before has ended, and then waits for memory; here weights are on their way while thread blocks wait for
/// each other. All arrays are in the GPU's memory and borrowed.
namespace adtrain::kernels {

/// The networks that it is for.
struct StackShape {
  static constexpr int kWidth = 2048, kInner = 4 * kWidth;
  static constexpr int kHeadSize = 64, kHeads = kWidth / kHeadSize;
  static constexpr int kMostRows = 8, kMostBlocks = 32;
  static constexpr int kTile = 16;                      ///< features that are multiplied at once
  static constexpr int kThreadBlocks = kWidth / kTile;  ///< each on a multiprocessor of its own, at once
  static constexpr int kScaledAlike = 64;               ///< columns that share a scale, of 4 bits
  static constexpr int kParts = 4;                      ///< thread blocks at most that share a head's keys

  /// Of 128 bytes, in a feature's codes of kWidth columns.
  static constexpr int code_chunks(WeightForm form) {
    return kWidth / (form == WeightForm::kEightBits ? 1 : 2) / 128;
  }
};

/// The products of a block, in their order.
enum StackMatrix { kQkv, kOut, kUp, kDown, kMatrices };

/// A block x + attention(norm(x)), then x + MLP(norm(x)) with GELU, and what it keeps. Parameters are of the
/// job's type, aligned to 16 bytes.
struct StackedBlock {
  struct Norm {
    const void* weight;     ///< (width)
    const float* products;  ///< norm_products() with the matrix behind it, (2, out); 0 of RMSNorm
  };

  /// What is added to products, and the block's rings.
  struct Operands {
    const void* bias[kMatrices];  ///< 0 where there is none
    Norm norms[2];                ///< before kQkv and kUp
    HeadNormVectors query, key;   ///< as in DecodingNorms
    void *keys, *values;          ///< as in DecodingAttention
    float* key_norms;             ///< the same
  };

  TensorMap codes[kMatrices];          ///< chunked, boxes of kTile rows of code_chunks()
  TensorMap scales[kMatrices];         ///< absmax in fp32, boxes of kTile rows; of 4 bits
  const float* row_scales[kMatrices];  ///< absmax (out); of 8 bits
  Operands operands;
};

struct DecodingStack {
  const StackedBlock* blocks;
  int count;  ///< of them, kMostBlocks at most
  int rows;   ///< kMostRows at most
  ShortType type;
  WeightForm form;        ///< of all matrices: kFourBits or kEightBits
  const float* code_map;  ///< of 4 bits: the same of all matrices
  bool layer_norm;        ///< or RMSNorm, of heads, too
  float epsilon;
  int window;  ///< places of a ring, 2 or more
  bool alibi;
  const int64_t* tokens;  ///< how many there have been, the newest among them: 2 or more
  const void* input;      ///< (rows, width)
  void* output;           ///< the same
  uint32_t* exchange;     ///< exchange_words(), which clear_exchange() has set
};

/// What a part of a head's keys gives, in fp32: weighted values, the greatest exponent, and the weights'
/// total.
constexpr int kPartWords = StackShape::kHeadSize + 2;

/// Words of 32 bits through which thread blocks exchange what blocks compute: queries, keys and values, what
/// attention reads, two sums, and the inner activations; then what parts of heads' keys give.
constexpr int64_t exchange_words(int64_t rows, int64_t blocks) {
  constexpr int64_t kOfRow = 3 + 1 + 2 + 4;  // in widths
  constexpr int64_t kOfParts = (StackShape::kParts - 1) * StackShape::kHeads * kPartWords;
  return blocks * (rows * kOfRow * StackShape::kWidth / 2 + kOfParts);
}

/// Loads the kernel to the current GPU, which cannot happen while a graph is captured: before the first
/// decode_stack() there.
void load_decode_stack(ShortType type, WeightForm form);
/// Before each decode_stack(). Returns at once.
void clear_exchange(uint32_t* exchange, int64_t rows, int64_t blocks, cudaStream_t stream);
/// Returns at once. Deterministic. As in decoding_attention(), keys are not read that hardly count with
/// ALiBi. Throws EnvironmentError where the kernel cannot be launched: its thread blocks must fit the GPU at
/// once.
void decode_stack(const DecodingStack& stack, cudaStream_t stream);

}  // namespace adtrain::kernels

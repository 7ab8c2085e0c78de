#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/primitives/FloatType.h"
#include "kernels/primitives/MatrixRows.h"

/// Kernels over weights in bitsandbytes' stored form; see QuantisedMatrix. All arrays are in the GPU's memory
/// and borrowed. Calls return at once and throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

enum class WeightForm {
  kFourBits,
  kNestedFourBits,  ///< with double quantisation
  kEightBits,
};

/// What kernels read of a QuantisedMatrix. `codes` are aligned to 16 bytes.
struct QuantisedWeights {
  WeightForm form;
  int64_t out_features, in_features;
  const void* codes;
  const void* absmax;
  const float* code_map;       ///< 16 values of 4-bit codes
  const float* nested_absmax;  ///< this and the rest: of double quantisation
  const float* nested_map;
  float nested_offset;
  int block_shift, nested_shift;  ///< binary logarithms of the block sizes
};

/// output (out_features, in_features) = the weights, computed in fp32 and rounded once.
void dequantise(const QuantisedWeights& weights, FloatType type, void* output, cudaStream_t stream);

/// LayerNorm or RMSNorm of each row of an input.
struct RowNorm {
  const void* weight;  ///< in_features of the product's type, aligned to 16 bytes; null for no norm
  /// norm_products(), (2, out_features). Null for RMSNorm.
  const float* products;
  float epsilon;
};

/// output (rows, out_features) = input (rows, in_features) · the weights' transpose + bias, or GELU of that,
/// + sum. Sums are in fp32. Input, sum and output are dense, the input and, where out_features is a multiple
/// of 8, sum and output are aligned to 16 bytes; `bias` and `sum` are null where there is none.
struct QuantisedProduct {
  QuantisedWeights weights;
  ShortType type;  ///< of input, bias and output
  int rows;
  int processors;  ///< multiprocessors of the GPU
  const void* input;
  RowNorm norm;  ///< of the input: of few_rows_product() alone, where norms_few_rows()
  const void* bias;
  bool gelu;
  const void* sum;
  void* output;
};

/// Columns that thread blocks and warps go by: in_features is a multiple of it in the products below.
constexpr int kBlockColumns = 64;
constexpr int kProducts = kBlockColumns / 16;  ///< of tensor cores, that such columns take

/// How a product is computed.
enum class ProductWay {
  kFewRows,     ///< few_rows_product()
  kTile128x64,  ///< many_rows_product(); a thread block has so many features × rows
  kTile128x128,
  kTile128x256,
  kLibrary,  ///< the weights are dequantised, and a library multiplies
};

constexpr int kMostFewRows = 32;
/// The product for 1 … kMostFewRows rows, on GPUs of compute capability 9.0 and later: codes go
/// from memory to the registers of the one warp that needs them. Deterministic.
void few_rows_product(const QuantisedProduct& product, cudaStream_t stream);

/// Whether few_rows_product() can norm rows of so many features.
constexpr bool norms_few_rows(int64_t in_features) {
  constexpr int64_t kWidest = 6 * 1024 - 64;  // what fits 99 KiB of shared memory beside the rest
  return in_features <= kWidest;
}

/// A way of many_rows_product() with its splits, which other ways have one of.
struct ProductPlan {
  ProductWay way;
  int splits = 1;
};

constexpr int kMostSplits = 8;
/// The product for any number of rows, on GPUs of compute capability 9.0 alone: by tensor cores, which codes
/// reach through registers. Weights are rounded to the product's type. `plan`: one of its tiles; as many
/// thread blocks as it has splits, kMostSplits at most, share the columns that a tile sums over, at most as
/// many as there are blocks of kBlockColumns. Deterministic.
void many_rows_product(const QuantisedProduct& product, const ProductPlan& plan, cudaStream_t stream);

}  // namespace adtrain::kernels

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

/// output (rows, out_features) = input (rows, in_features) · the weights' transpose + bias. Sums are in fp32.
/// Input and output are dense, the input is aligned to 16 bytes; `bias` is null where there is none.
struct QuantisedProduct {
  QuantisedWeights weights;
  ShortType type;  ///< of input, bias and output
  int rows;
  int processors;  ///< multiprocessors of the GPU
  const void* input;
  const void* bias;
  void* output;
};

/// Columns that thread blocks and warps go by: in_features is a multiple of it in the products below.
constexpr int kBlockColumns = 64;

/// How a product is computed.
enum class ProductWay {
  kFewRows,    ///< few_rows_product()
  kTile64x64,  ///< many_rows_product(); a thread block has so many features × rows
  kTile128x64,
  kTile128x128,
  kLibrary,  ///< the weights are dequantised, and a library multiplies
};

constexpr int kMostFewRows = 32;
/// The product for 1 … kMostFewRows rows, on GPUs of compute capability 9.0 and later. It is bound by memory:
/// codes go from there to the registers of the one warp that needs them. Deterministic.
void few_rows_product(const QuantisedProduct& product, cudaStream_t stream);

/// The product for any number of rows, on GPUs of compute capability 9.0 alone: by tensor cores, which codes
/// reach through registers. Weights are rounded to the product's type. `tile`: one of the three.
/// Deterministic.
void many_rows_product(const QuantisedProduct& product, ProductWay tile, cudaStream_t stream);

/// The largest tile that leaves few multiprocessors idle: it reads the least.
inline ProductWay product_tile(int64_t out_features, int64_t rows, int processors) {
  const auto blocks = [&](int64_t features_of_tile, int64_t rows_of_tile) {
    return (out_features + features_of_tile - 1) / features_of_tile *
           ((rows + rows_of_tile - 1) / rows_of_tile);
  };
  const int64_t enough = int64_t{processors} * 2 / 3;
  if (blocks(128, 128) >= enough) return ProductWay::kTile128x128;
  return blocks(128, 64) >= enough ? ProductWay::kTile128x64 : ProductWay::kTile64x64;
}

}  // namespace adtrain::kernels

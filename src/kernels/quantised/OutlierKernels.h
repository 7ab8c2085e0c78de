#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/quantised/QuantisedKernels.h"

/// The kernels of LLM.int8's product around its product of whole numbers; see OutlierProduct.h. All arrays
/// are in the GPU's memory and borrowed. Calls return at once and throw EnvironmentError where a kernel
/// cannot be launched.
namespace adtrain::kernels {

/// Rows of a batch, dense and aligned to 16 bytes, and what makes their elements outliers.
struct OutlierRows {
  ShortType type;
  int rows, columns;
  const void* input;        ///< (rows, columns)
  uint16_t threshold_bits;  ///< of fp16: a magnitude, as are elements rounded to fp16, of this much or more
};

/// outlier_columns (columns, and as many more as make a multiple of 16), which were 0, becomes 1 where a row
/// has an outlier; largest (rows) the largest magnitude of each row that is none, NaN where the row has one.
void find_outliers(const OutlierRows& rows, uint8_t* outlier_columns, float* largest, cudaStream_t stream);

/// The columns that are multiplied apart, in ascending order. Kernels know how many they are, the host does
/// not.
struct OutlierColumns {
  int* count;
  int* columns;  ///< has room for all
};

/// codes (rows, columns), aligned to 8 bytes: rows · 127 / largest, rounded to whole numbers, and 0 in the
/// columns that find_outliers() found, which `list` has afterwards.
void round_rows(const OutlierRows& rows, const uint8_t* outlier_columns, const float* largest, int8_t* codes,
                const OutlierColumns& list, cudaStream_t stream);

constexpr int kMostRowsAtOnce = 32;
constexpr int64_t kMostElementsAtOnce = 16384;  ///< more take longer than by two kernels
/// Both of so many rows and elements at most, in one kernel.
void find_and_round(const OutlierRows& rows, float* largest, int8_t* codes, const OutlierColumns& list,
                    cudaStream_t stream);

/// output = the products of codes, scaled, + those of the columns apart, in 16 bits with fp32 sums, + bias,
/// or GELU of that, + sum. Of the product's input, type, weights, bias, gelu, sum and output, which are those
/// of these rows; its norm is none.
struct OutlierProduct {
  QuantisedProduct product;
  const float* largest;  ///< (rows)
  OutlierColumns apart;
};
/// `sums` (rows, out_features), aligned to 16 bytes: of products of codes.
void finish_outlier_product(const OutlierProduct& job, const int32_t* sums, cudaStream_t stream);

constexpr int kMostRowsTogether = 16;
/// All of it, of so many rows at most. Codes (rows, in_features) and those of the weights are aligned to
/// 16 bytes, and in_features is a multiple of 16. Weights and bias are read before find_and_round() or
/// round_rows() has ended, which precedes this; when it began, all before it had ended. So these two must not
/// start early themselves.
void outlier_product_of_few_rows(const OutlierProduct& job, const int8_t* codes, cudaStream_t stream);

constexpr int kOutlierTileRows = 128, kOutlierTileFeatures = 256;
/// The same of any number of rows, in tiles of so many rows and features, on GPUs of compute capability 9.0
/// alone, where out_features is a multiple of 8.
void outlier_product_by_tiles(const OutlierProduct& job, const int8_t* codes, cudaStream_t stream);

}  // namespace adtrain::kernels

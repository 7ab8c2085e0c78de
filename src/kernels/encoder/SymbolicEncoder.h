#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

/// The encoder of grids of symbols (XLand-100B's baseline) and its gradients: embeddings of each cell's
/// digits, three convolutions of 2 × 2 without padding with ReLU, and a linear layer. All arrays are in the
/// GPU's memory, dense and row-major, borrowed; parameters are aligned to 16 bytes. Calls return at once and
/// throw EnvironmentError where a kernel cannot be launched. ObservationEncoder's plain operators define the
/// correct results.
///
/// A cell holds one of N numbers, those of its digits together. What the first convolution takes from a cell
/// depends on that number and on the corner alone, so a table of 4 · N rows stands for the embeddings and
/// their product:
///
///     table[corner][number] = Σ over digits: first weight[corner] · embedding of that digit
///     first[place] = relu(bias + Σ over corners: table[corner][number of the cell at place + corner])
///
/// The table's gradient is kept digit by digit, Σ values rows instead of N: one-hot rows of digits times the
/// gradient of `first`, a product on the tensor cores that sums in a fixed order.
namespace adtrain::kernels {

/// T tokens, each a grid of cells of digits.
struct SymbolicEncoderShape {
  static constexpr int kMostDigits = 4;
  static constexpr int kMostNumbers = 256;  ///< of a cell: the product of its digits' values
  static constexpr int kMostSymbols = 32;   ///< of a cell: their sum
  static constexpr int kMostCells = 128;    ///< of a grid
  static constexpr int kDigitFeatures = 64, kChannels = 32, kFeatures = 64, kConvolutions = 3, kCorners = 4;
  static constexpr int kMostLinearPlaces = 4;

  int64_t tokens;
  int height, width;  ///< of the grid, in cells
  int digits;
  int values[kMostDigits];  ///< of each digit, the most significant first
  /// Whether the linear layer is the kernels', too: it makes kFeatures of at most kMostLinearPlaces.
  bool linear;
  ShortType type;  ///< of parameters and features

  __host__ __device__ int cells() const { return height * width; }
  /// What a convolution leaves; each takes a row and a column away.
  __host__ __device__ int places(int convolution) const {
    return (height - convolution) * (width - convolution);
  }
  __host__ __device__ int numbers() const {
    int product = 1;
    for (int digit = 0; digit < digits; ++digit) product *= values[digit];
    return product;
  }
  __host__ __device__ int symbols() const {
    int sum = 0;
    for (int digit = 0; digit < digits; ++digit) sum += values[digit];
    return sum;
  }
  /// Of a token: those of the linear layer, else (channel, place) of the last convolution.
  int features() const { return linear ? kFeatures : kChannels * places(kConvolutions); }
  /// The elements of the table.
  __host__ __device__ int table_size() const { return kCorners * numbers() * kChannels; }
};

/// (T, cells) whole numbers, or (T, cells, digits), each counted from 0. Numbers beyond the last count as it.
struct SymbolArray {
  const void* numbers;
  bool bytes;   ///< uint8; else int32
  bool packed;  ///< a number of `numbers` is that of all digits
};

/// In the type of the shape. `embeddings` of each digit: (at least its values, 64). Convolutions: (32, in, 2,
/// 2), (32). The linear layer, where the kernels have it: (64, 32 · places), (64).
struct SymbolicEncoderWeights {
  const void* embeddings[SymbolicEncoderShape::kMostDigits];
  const void* convolution[SymbolicEncoderShape::kConvolutions];
  const void* bias[SymbolicEncoderShape::kConvolutions];
  const void *linear, *linear_bias;
};

/// The table (4, numbers, 32), in the type of the shape.
void make_symbol_table(const SymbolicEncoderShape& shape, const SymbolicEncoderWeights& weights, void* table,
                       cudaStream_t stream);

/// `features` (T, shape.features()). Table, activations and features are rounded, sums are in fp32.
void encode_symbols(const SymbolicEncoderShape& shape, const SymbolArray& cells, const void* table,
                    const SymbolicEncoderWeights& weights, void* features, cudaStream_t stream);

/// Where the gradients of the parameters behind the table begin in a part, and a part's size; the layout is
/// FlatLayout's.
struct SymbolicEncoderGradients {
  int second, second_bias, third, third_bias;
  int linear, linear_bias;  ///< where the kernels have the linear layer
  int total;

  static SymbolicEncoderGradients of(const SymbolicEncoderShape& shape);
};
/// The size of a part of the table's gradient: (4, kMostSymbols, 32), a row for each symbol. Those of the
/// first digit come first.
constexpr int kSymbolTableGradient =
    SymbolicEncoderShape::kCorners * SymbolicEncoderShape::kMostSymbols * SymbolicEncoderShape::kChannels;

/// The shared memory that a thread block needs at least. Kernels exist for what fits on an H100.
int symbolic_encoder_bytes(const SymbolicEncoderShape& shape);

/// How many partial sums encode_symbols_backward writes: one per thread block.
int symbolic_encoder_parts(const SymbolicEncoderShape& shape);

/// From the gradient of the features (T, shape.features()) to partial sums of the gradients: `of_table`
/// (parts, kSymbolTableGradient) and `of_weights` (parts, SymbolicEncoderGradients.total). The activations
/// are computed again.
void encode_symbols_backward(const SymbolicEncoderShape& shape, const SymbolArray& cells, const void* table,
                             const SymbolicEncoderWeights& weights, const void* d_features, float* of_table,
                             float* of_weights, cudaStream_t stream);

/// Adds the gradients of the parameters before the table, in fp32, given that of the table.
void symbol_table_backward(const SymbolicEncoderShape& shape, const SymbolicEncoderWeights& weights,
                           const float* d_table,
                           float* const (&embeddings)[SymbolicEncoderShape::kMostDigits], float* convolution,
                           float* bias, cudaStream_t stream);

}  // namespace adtrain::kernels

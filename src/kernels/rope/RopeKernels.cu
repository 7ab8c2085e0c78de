#include "base/Launch.cuh"
#include "kernels/primitives/ColumnSums.cuh"
#include "kernels/rope/RopeKernels.h"

namespace adtrain::kernels {
namespace {

/// Two vectors of features that are rotated together: vectors i and i + (half a head) of a head's queries,
/// keys or values. A thread has one such pair of columns in some of the rows.
class PairOfColumns {
 public:
  /// The thread's pair among the `kinds` (2: queries and keys, 3: values too) of each head.
  __device__ PairOfColumns(const RopeShape& shape, int kinds)
      : half_(shape.head_size / (2 * kVectorWidth)), row_(shape.heads * 2 * half_) {
    const int column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x), part = column / half_;
    head_ = part / kinds;
    kind_ = part % kinds;
    in_half_ = column % half_;
  }

  __device__ bool exists(const RopeShape& shape) const { return head_ < shape.heads; }
  /// 0 for queries, 1 for keys, 2 for values.
  __device__ int kind() const { return kind_; }
  __device__ bool is_rotated() const { return kind_ < 2; }
  /// The distance from the pair's first vector to its second.
  __device__ int apart() const { return half_; }
  /// The index of the first vector in (rows, heads, 3, head size).
  __device__ int64_t in_projected(int64_t row) const {
    return row * 3 * row_ + (3 * head_ + kind_) * 2 * half_ + in_half_;
  }
  /// The same index in (rows, heads, head size).
  __device__ int64_t in_kind(int64_t row) const { return row * row_ + head_ * 2 * half_ + in_half_; }
  /// The index of the first of eight angles in (positions, head size / 2).
  __device__ int64_t in_angles(int token) const { return (int64_t{token} * half_ + in_half_) * kVectorWidth; }

 private:
  int half_;  ///< vectors of half a head
  int row_;   ///< vectors of a row of one kind
  int head_, kind_, in_half_;
};

/// The token of a row. It is computed in 32 bits, because 64-bit divisions take longer than moving the row.
struct Token {
  int sequence, in_sequence;
  int position;
  __device__ Token(int64_t row, const RopeShape& shape) {
    const auto number = static_cast<unsigned>(row), length = static_cast<unsigned>(shape.length);
    sequence = static_cast<int>(number / length);
    in_sequence = static_cast<int>(number % length);
    position = in_sequence < shape.length - shape.queries ? in_sequence : in_sequence - shape.queries;
  }
};

__device__ Floats floats_at(const float* from) {
  const auto* quads = reinterpret_cast<const float4*>(from);
  const float4 a = __ldg(quads), b = __ldg(quads + 1);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

/// Rotates the pairs of elements by the token's angles, or back.
template <class Short>
__device__ void rotate(Vector& first, Vector& second, const RopeShape& shape, int64_t angles, bool back) {
  const Floats a = unpacked<Short>(first), b = unpacked<Short>(second),
               cosines = floats_at(shape.cosines + angles), sines = floats_at(shape.sines + angles);
  Floats turned_a, turned_b;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) {
    const float cosine = cosines.at[i], sine = back ? -sines.at[i] : sines.at[i];
    turned_a.at[i] = a.at[i] * cosine - b.at[i] * sine;
    turned_b.at[i] = b.at[i] * cosine + a.at[i] * sine;
  }
  first = packed<Short>(turned_a);
  second = packed<Short>(turned_b);
}

template <class Short>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    rope_kernel(const __grid_constant__ RopeShape shape, Vector* projected) {
  const PairOfColumns pair(shape, 2);
  if (!pair.exists(shape)) return;
  const RowsOfThread own;
  for (int64_t row = own.first; row < shape.rows; row += own.step) {
    Vector* place = projected + pair.in_projected(row);
    Vector first = place[0], second = place[pair.apart()];
    rotate<Short>(first, second, shape, pair.in_angles(Token(row, shape).position), /*back=*/false);
    place[0] = first;
    place[pair.apart()] = second;
  }
}

template <class Short>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    rope_backward_kernel(const __grid_constant__ RopeBackward call) {
  const RopeShape& shape = call.shape;
  const PairOfColumns pair(shape, 3);
  if (!pair.exists(shape)) return;
  const Vector* from = pair.kind() == 0 ? call.d_queries : pair.kind() == 1 ? call.d_keys : call.d_values;
  const int rows_of_sequence = pair.kind() == 0 ? call.query_rows : shape.length;
  const RowsOfThread own;
  for (int64_t row = own.first; row < shape.rows; row += own.step) {
    const Token token(row, shape);
    const int of_kind = token.in_sequence - (shape.length - rows_of_sequence);
    Vector first = {0, 0, 0, 0}, second = first;  // zero for tokens without a query
    if (of_kind >= 0) {
      const Vector* place = from + pair.in_kind(int64_t{token.sequence} * rows_of_sequence + of_kind);
      first = __ldg(place);
      second = __ldg(place + pair.apart());
    }
    if (pair.is_rotated()) rotate<Short>(first, second, shape, pair.in_angles(token.position), /*back=*/true);
    Vector* to = call.d_projected + pair.in_projected(row);
    to[0] = first;
    to[pair.apart()] = second;
  }
}

/// A matrix whose vectors are the pairs of `kinds`; the threads are divided as for its columns.
MatrixShape pairs_of(const RopeShape& shape, int kinds) {
  return {shape.rows, shape.heads * kinds * shape.head_size / 2, shape.type};
}
dim3 blocks_for(const RopeShape& shape, int kinds) {
  const MatrixShape pairs = pairs_of(shape, kinds);
  return {column_blocks(pairs), static_cast<unsigned>(column_parts(pairs, shape.processors)), 1};
}

}  // namespace

void apply_rope(const RopeShape& shape, Vector* projected, cudaStream_t stream) {
  with_type(shape.type, [&](auto type) {
    gpu::launch("rope_kernel", rope_kernel<decltype(type)>, blocks_for(shape, 2), dim3(kWarp, kColumnWarps),
                0, stream, shape, projected);
  });
}

void apply_rope_backward(const RopeBackward& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    gpu::launch("rope_backward_kernel", rope_backward_kernel<decltype(type)>, blocks_for(call.shape, 3),
                dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

}  // namespace adtrain::kernels

#include <algorithm>
#include <type_traits>

#include "base/Launch.cuh"
#include "kernels/activation/ActivationKernels.h"
#include "kernels/primitives/ColumnSums.cuh"
#include "kernels/primitives/Instructions.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kAhead = 4;  ///< rows in flight at once

/// The distribution function of the standard normal distribution at x (`below`) and e^(−x²/2) (`bell`). It
/// uses formula 7.1.26 of Abramowitz and Stegun, within 3e-7, which costs half as much as erff(). With erff()
/// the kernel would be slower than memory.
struct Normal {
  float below;
  float bell;
  __device__ explicit Normal(float x) {
    constexpr float kLog2E = 1.44269504F, kRootHalf = 0.70710678F;
    bell = exp2_of(-0.5F * kLog2E * x * x);
    const float t = inverse_of(1.0F + 0.3275911F * kRootHalf * fabsf(x));
    const float sum =
        0.254829592F + t * (-0.284496736F + t * (1.421413741F + t * (-1.453152027F + t * 1.061405429F)));
    const float tail = 0.5F * bell * t * sum;
    below = x < 0 ? tail : 1.0F - tail;
  }
  /// The derivative of x Φ(x) at the same x.
  __device__ float slope(float x) const {
    constexpr float kBellHeight = 0.39894228F;  // 1 / √(2π)
    return below + x * kBellHeight * bell;
  }
};

/// What GeluKind::kTanh has for Φ, (1 + tanh u) / 2 = 1 / (1 + e^(−2u)), and its derivative.
struct TanhForm {
  float below;
  float density;
  __device__ explicit TanhForm(float x) {
    // Beyond it they are 0 and 1 in fp32.
    constexpr float kLargest = 10;
    constexpr float kLog2E = 1.44269504F, kLinear = 0.797884561F, kCubic = 0.044715F * kLinear;
    const float near = fminf(fmaxf(x, -kLargest), kLargest), square = near * near;
    below = inverse_of(1.0F + exp2_of(-2 * kLog2E * near * (kLinear + kCubic * square)));
    density = 2 * below * (1.0F - below) * (kLinear + 3 * kCubic * square);
  }
  __device__ float slope(float x) const { return below + x * density; }
};

template <GeluKind kKind>
using FormOf = std::conditional_t<kKind == GeluKind::kTanh, TanhForm, Normal>;

template <class Short, GeluKind kKind>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    gelu_forward_kernel(const __grid_constant__ GeluForward call) {
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  if (column >= vectors) return;
  const Dropout dropout(call.dropout);
  const Floats bias = unpacked<Short>(__ldg(call.bias + column));
  Vector product[kAhead];
  unsigned keep[kAhead];
  for_rows_of_thread<kAhead>(
      call.shape.rows,
      [&](int k, int64_t row) {
        const int64_t place = row * vectors + column;
        product[k] = __ldg(call.product + place);
        keep[k] = dropout.kept(place);
      },
      [&](int k, int64_t row) {
        Floats y = unpacked<Short>(product[k]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) {
          const float x = y.at[i] + bias.at[i];
          y.at[i] = x * FormOf<kKind>(x).below;
        }
        if (dropout.drops()) dropout.apply(y, keep[k]);
        call.y[row * vectors + column] = packed<Short>(y);
      });
}

template <class Short, GeluKind kKind>
__global__ void __launch_bounds__(kWarp* kColumnWarps, kColumnBlocks)
    gelu_backward_kernel(const __grid_constant__ GeluBackward call) {
  constexpr int kRows = kAhead / 2;  // half as many, as there are two matrices
  const int vectors = call.shape.vectors(), column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  const Dropout dropout(call.dropout);
  Floats d_bias = {};
  if (column < vectors) {
    const Floats bias = unpacked<Short>(__ldg(call.bias + column));
    Vector d_y[kRows], product[kRows];
    unsigned keep[kRows];
    for_rows_of_thread<kRows>(
        call.shape.rows,
        [&](int k, int64_t row) {
          const int64_t place = row * vectors + column;
          d_y[k] = __ldg(call.d_y + place);
          product[k] = __ldg(call.product + place);
          keep[k] = dropout.kept(place);
        },
        [&](int k, int64_t row) {
          Floats gradient = unpacked<Short>(d_y[k]);
          const Floats before = unpacked<Short>(product[k]);
          if (dropout.drops()) dropout.apply(gradient, keep[k]);
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) {
            const float x = before.at[i] + bias.at[i];
            gradient.at[i] *= FormOf<kKind>(x).slope(x);
            d_bias.at[i] += gradient.at[i];
          }
          call.d_product[row * vectors + column] = packed<Short>(gradient);
        });
  }
  put_column_sums(d_bias, column, vectors, call.parts);
}

/// Calls launch(type, kind), the kind as a constant.
template <class Launch>
void with_kind(ShortType type, GeluKind kind, Launch launch) {
  with_type(type, [&](auto of_type) {
    if (kind == GeluKind::kTanh) return launch(of_type, std::integral_constant<GeluKind, GeluKind::kTanh>());
    launch(of_type, std::integral_constant<GeluKind, GeluKind::kExact>());
  });
}

}  // namespace

void gelu_forward(const GeluForward& call, cudaStream_t stream) {
  const dim3 blocks(column_blocks(call.shape),
                    static_cast<unsigned>(column_parts(call.shape, call.processors)));
  with_kind(call.shape.type, call.kind, [&](auto type, auto kind) {
    gpu::launch("gelu_forward_kernel", gelu_forward_kernel<decltype(type), kind>, blocks,
                dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

void gelu_backward(const GeluBackward& call, cudaStream_t stream) {
  const dim3 blocks(column_blocks(call.shape), static_cast<unsigned>(call.part_count));
  with_kind(call.shape.type, call.kind, [&](auto type, auto kind) {
    gpu::launch("gelu_backward_kernel", gelu_backward_kernel<decltype(type), kind>, blocks,
                dim3(kWarp, kColumnWarps), 0, stream, call);
  });
}

}  // namespace adtrain::kernels

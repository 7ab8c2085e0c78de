#pragma once

#include "collection/gpu/LossDerivatives.cuh"

/// Both networks' gradients, which stay in the registers of the threads that find them. A thread of a network
/// has 4 × 4 numbers of the hidden matrix (its tile) and up to three more, its `others`.
namespace adtrain::gpu {

constexpr int kTile = 4;
constexpr int kOthers = 3;

/// One number for each parameter of a thread.
struct ThreadParameters {
  float tile[kTile][kTile] = {};
  float others[kOthers] = {};
};

/// Where a thread's parameters stand in MlpWeights.
struct ParameterPlaces {
  static constexpr int kHidden = 3 * kUnits, kHiddenBias = kHidden + kUnits * kUnits,
                       kOutput = kHiddenBias + kUnits;

  __device__ static int tile(const Role& role, int i, int j) {
    return kHidden + (kTile * role.tile_row + i) * kUnits + kTile * role.tile_column + j;
  }
  /// The first of the others: both inputs' weights and biases, then the hidden biases. The second and third:
  /// the output layer. −1 where a thread has none.
  __device__ static int other(const Role& role, int i) {
    if (i == 0) return role.thread < kHidden ? role.thread : kHiddenBias + role.thread - kHidden;
    const int index = (i - 1) * kNetworkThreads + role.thread;
    return index < role.outputs * (kUnits + 1) ? kOutput + index : -1;
  }
};

struct Backward {
  SharedNetworks& networks;
  float (&second_delta)[2][kRows][kStride];  ///< the loss's derivatives by what goes into the second layer
  const OutputDerivatives& derivatives;
  const float2* cells;
  int rows;

  /// The output layer's gradient, and the derivatives below it. A barrier must follow, as after `hidden`.
  __device__ void output(const Role& role, ThreadParameters& gradient) const {
    const float(*second)[kStride] = networks.second[role.network];
    const float(*by_output)[kRows] = derivatives + role.network * kActions;
    for (int i = 1; i < kOthers; ++i) {
      const int index = (i - 1) * kNetworkThreads + role.thread;
      if (index >= role.outputs * (kUnits + 1)) break;
      const bool bias = index >= role.outputs * kUnits;
      const int output = bias ? index - role.outputs * kUnits : index / kUnits;
      float sum = 0;
      for (int row = 0; row < rows; ++row) {
        sum += by_output[output][row] * (bias ? 1 : second[row][index % kUnits]);
      }
      gradient.others[i] += sum;
    }
    const int unit = role.thread % kUnits;
    const float* weights = networks.weights[role.network].output + unit;
    float weight[kActions];
    for (int o = 0; o < kActions; ++o) weight[o] = o < role.outputs ? weights[o * kUnits] : 0;
    for (int row = role.thread / kUnits; row < rows; row += kNetworkThreads / kUnits) {
      float sum = by_output[0][row] * weight[0];
      if (role.network == 0) {
        for (int o = 1; o < kActions; ++o) sum += by_output[o][row] * weight[o];
      }
      const float value = second[row][unit];
      second_delta[role.network][row][unit] = sum * (1 - value * value);
    }
  }

  /// The hidden layer's gradient; the derivatives by what goes into the first layer take the place of the
  /// second layer's values.
  __device__ void hidden(const Role& role, ThreadParameters& gradient) const {
    const float(*first)[kStride] = networks.first[role.network];
    const float(*delta)[kStride] = second_delta[role.network];
    const int from = kTile * role.tile_row, to = kTile * role.tile_column;
#pragma unroll 4
    for (int row = 0; row < rows; ++row) {
      const float4 in = load4(&first[row][from]), out = load4(&delta[row][to]);
      add4(gradient.tile[0], in.x, out);
      add4(gradient.tile[1], in.y, out);
      add4(gradient.tile[2], in.z, out);
      add4(gradient.tile[3], in.w, out);
    }
    if (role.thread >= ParameterPlaces::kHidden) {
      for (int row = 0; row < rows; ++row) {
        gradient.others[0] += delta[row][role.thread - ParameterPlaces::kHidden];
      }
    }
    first_delta(role);
  }

  /// The first layer's gradient.
  __device__ void input(const Role& role, ThreadParameters& gradient) const {
    if (role.thread >= ParameterPlaces::kHidden) return;
    const float(*delta)[kStride] = networks.second[role.network];
    const int unit = role.thread % kUnits, input = role.thread / kUnits;
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
      const float2 cell = cells[row];
      sum += delta[row][unit] * (input == 0 ? cell.x : input == 1 ? cell.y : 1);
    }
    gradient.others[0] += sum;
  }

 private:
  /// A thread computes four rows of four units that lie 16 apart.
  __device__ void first_delta(const Role& role) const {
    const int row = kTile * role.tile_row;
    if (row >= rows) return;
    const float(*delta)[kStride] = second_delta[role.network];
    const SharedWeights& weights = networks.weights[role.network];
    float sums[kTile][kTile] = {};
#pragma unroll 2
    for (int k = 0; k < kUnits; k += 4) {
      float4 in[kTile];
      for (int i = 0; i < kTile; ++i) in[i] = load4(&delta[row + i][k]);
      for (int j = 0; j < kTile; ++j) {
        const float4 weight = load4(&weights.hidden[role.tile_column + 16 * j][k]);
        for (int i = 0; i < kTile; ++i) {
          sums[i][j] += in[i].x * weight.x + in[i].y * weight.y + in[i].z * weight.z + in[i].w * weight.w;
        }
      }
    }
    for (int i = 0; i < kTile; ++i) {
      for (int j = 0; j < kTile; ++j) {
        const int unit = role.tile_column + 16 * j;
        const float value = networks.first[role.network][row + i][unit];
        networks.second[role.network][row + i][unit] = sums[i][j] * (1 - value * value);
      }
    }
  }
};

}  // namespace adtrain::gpu

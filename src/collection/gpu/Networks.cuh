#pragma once

#include "collection/gpu/TaskMemory.h"

/// The policy and the value network of one task in the shared memory of its thread block, which evaluates
/// them for up to 64 cells at a time. Half of the threads work on each network.
namespace adtrain::gpu {

constexpr int kThreads = 512;
constexpr int kNetworkThreads = kThreads / 2;
constexpr int kRows = 64;
/// Floats between rows: four more than a row has, so that neighbouring rows lie in different banks.
constexpr int kStride = kUnits + 4;
constexpr int kAllOutputs = kActions + 1;  ///< the policy's logits, then the value

/// Parameters as in MlpWeights, with the hidden matrix's rows apart.
struct alignas(16) SharedWeights {
  float input[2][kUnits];
  float input_bias[kUnits];
  float hidden[kUnits][kStride];
  float hidden_bias[kUnits];
  float output[kActions * kUnits + 8];  ///< (outputs, 64), then the biases
};

struct SharedNetworks {
  SharedWeights weights[2];
  alignas(16) float first[2][kRows][kStride];   ///< values of the first hidden layer
  alignas(16) float second[2][kRows][kStride];  ///< of the second
  float outputs[kAllOutputs][kRows];
};

/// Which network a thread works on, and as which of its threads.
struct Role {
  int network = static_cast<int>(threadIdx.x) / kNetworkThreads;  ///< 0 the policy, 1 the value
  int thread = static_cast<int>(threadIdx.x) % kNetworkThreads;
  int outputs = network == 0 ? kActions : 1;
  /// Of the 16 × 16 tiles into which these threads cut 64 × 64 numbers.
  int tile_row = thread / 16;
  int tile_column = thread % 16;
};

/// Where the i-th parameter of a network stands in SharedWeights.
__device__ inline float& parameter(SharedWeights& weights, int i) {
  constexpr int kHidden = 3 * kUnits, kBehind = kHidden + kUnits * kUnits;
  float* const first = &weights.input[0][0];
  if (i < kHidden) return first[i];
  if (i < kBehind) return weights.hidden[(i - kHidden) / kUnits][i % kUnits];
  return weights.hidden_bias[i - kBehind];  // and on into `output`
}

/// For all threads; a barrier must follow.
__device__ inline void load_weights(SharedNetworks& networks, const NetworkState& state) {
  for (int i = static_cast<int>(threadIdx.x); i < kParameters; i += kThreads) {
    const int network = i < kPolicyParameters ? 0 : 1;
    parameter(networks.weights[network], i - network * kPolicyParameters) = state.weights[i];
  }
}

/// The hyperbolic tangent, with an absolute error of some 1e-7.
__device__ inline float tanh_of(float x) {
  const float decay = __expf(-2 * fabsf(x));
  return copysignf(__fdividef(1 - decay, 1 + decay), x);
}

__device__ inline float4 load4(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ inline void store4(float* to, float a, float b, float c, float d) {
  *reinterpret_cast<float4*>(to) = {a, b, c, d};
}

/// sums += factor · row, four numbers each.
__device__ inline void add4(float (&sums)[4], float factor, const float4& row) {
  sums[0] += factor * row.x;
  sums[1] += factor * row.y;
  sums[2] += factor * row.z;
  sums[3] += factor * row.w;
}

/// Evaluates the first hidden layer; `cells` are (x, y). A barrier must follow, as after the other layers.
__device__ inline void first_layer(SharedNetworks& networks, const Role& role, const float2* cells,
                                   int rows) {
  const SharedWeights& weights = networks.weights[role.network];
  const int unit = role.thread % kUnits;
  const float from_x = weights.input[0][unit], from_y = weights.input[1][unit],
              bias = weights.input_bias[unit];
  for (int row = role.thread / kUnits; row < rows; row += kNetworkThreads / kUnits) {
    const float2 cell = cells[row];
    networks.first[role.network][row][unit] = tanh_of(bias + cell.x * from_x + cell.y * from_y);
  }
}

/// A thread computes four rows of four units.
__device__ inline void second_layer(SharedNetworks& networks, const Role& role, int rows) {
  const int row = 4 * role.tile_row, column = 4 * role.tile_column;
  if (row >= rows) return;
  const SharedWeights& weights = networks.weights[role.network];
  const float(*in)[kStride] = networks.first[role.network];
  const float4 bias = load4(&weights.hidden_bias[column]);
  float sums[4][4];
  for (int i = 0; i < 4; ++i) {
    sums[i][0] = bias.x, sums[i][1] = bias.y, sums[i][2] = bias.z, sums[i][3] = bias.w;
  }
#pragma unroll 4
  for (int k = 0; k < kUnits; k += 4) {
    float4 factors[4];
    for (int i = 0; i < 4; ++i) factors[i] = load4(&in[row + i][k]);
    const float4 w0 = load4(&weights.hidden[k][column]), w1 = load4(&weights.hidden[k + 1][column]),
                 w2 = load4(&weights.hidden[k + 2][column]), w3 = load4(&weights.hidden[k + 3][column]);
    for (int i = 0; i < 4; ++i) {
      add4(sums[i], factors[i].x, w0);
      add4(sums[i], factors[i].y, w1);
      add4(sums[i], factors[i].z, w2);
      add4(sums[i], factors[i].w, w3);
    }
  }
  for (int i = 0; i < 4; ++i) {
    store4(&networks.second[role.network][row + i][column], tanh_of(sums[i][0]), tanh_of(sums[i][1]),
           tanh_of(sums[i][2]), tanh_of(sums[i][3]));
  }
}

/// Only the first kAllOutputs · kRows threads work here.
__device__ inline void output_layer(SharedNetworks& networks, int rows) {
  const int output = static_cast<int>(threadIdx.x) / kRows, row = static_cast<int>(threadIdx.x) % kRows;
  if (output >= kAllOutputs || row >= rows) return;
  const int network = output < kActions ? 0 : 1, index = output % kActions;
  const float* weights = networks.weights[network].output;
  float sums[4] = {weights[(network == 0 ? kActions : 1) * kUnits + index], 0, 0, 0};
#pragma unroll
  for (int k = 0; k < kUnits; k += 4) {
    const float4 value = load4(&networks.second[network][row][k]),
                 weight = load4(&weights[index * kUnits + k]);
    sums[0] += value.x * weight.x;
    sums[1] += value.y * weight.y;
    sums[2] += value.z * weight.z;
    sums[3] += value.w * weight.w;
  }
  networks.outputs[output][row] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The policy's probabilities in a row, none quite 0, which keeps ratios and logarithms finite.
__device__ inline void softmax(const SharedNetworks& networks, int row, float (&probabilities)[kActions]) {
  constexpr float kLeast = 1.17549435e-38F;
  float largest = networks.outputs[0][row], total = 0;
  for (int a = 1; a < kActions; ++a) largest = fmaxf(largest, networks.outputs[a][row]);
  for (int a = 0; a < kActions; ++a) {
    probabilities[a] = __expf(networks.outputs[a][row] - largest);
    total += probabilities[a];
  }
  for (int a = 0; a < kActions; ++a) probabilities[a] = fmaxf(probabilities[a] / total, kLeast);
}

}  // namespace adtrain::gpu

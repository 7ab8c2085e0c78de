#pragma once

#include "collection/gpu/Gradient.cuh"

/// Adam, for the parameters of one thread: its moments stay in registers while a kernel runs.
namespace adtrain::gpu {

/// What bias correction makes of the step's number.
struct AdamRates {
  float rate;          ///< learning rate ÷ (1 − β1 to the steps)
  float square_scale;  ///< 1 ÷ √(1 − β2 to the steps)
};

class ThreadAdam {
 public:
  /// Calls `visit(place in the state's arrays, mean, square mean)` for each parameter of the thread.
  template <class Visit>
  __device__ void each(const Role& role, const Visit& visit) {
    const int base = role.network * kPolicyParameters;
    for (int i = 0; i < kTile; ++i) {
      for (int j = 0; j < kTile; ++j) {
        visit(base + ParameterPlaces::tile(role, i, j), means_.tile[i][j], squares_.tile[i][j]);
      }
    }
    for (int i = 0; i < kOthers; ++i) {
      const int place = ParameterPlaces::other(role, i);
      if (place >= 0) visit(base + place, means_.others[i], squares_.others[i]);
    }
  }
  __device__ void load(const Role& role, const NetworkState& state) {
    each(role, [&](int place, float& mean, float& square) {
      mean = state.means[place];
      square = state.square_means[place];
    });
  }
  __device__ void save(const Role& role, NetworkState& state) {
    each(role, [&](int place, const float& mean, const float& square) {
      state.means[place] = mean;
      state.square_means[place] = square;
    });
  }

  /// Takes a step along gradient × `scale`.
  __device__ void step(const Role& role, SharedWeights& weights, const ThreadParameters& gradient,
                       float scale, const AdamRates& rates) {
    for (int i = 0; i < kTile; ++i) {
      for (int j = 0; j < kTile; ++j) {
        weights.hidden[kTile * role.tile_row + i][kTile * role.tile_column + j] -=
            change(gradient.tile[i][j] * scale, means_.tile[i][j], squares_.tile[i][j], rates);
      }
    }
    for (int i = 0; i < kOthers; ++i) {
      const int place = ParameterPlaces::other(role, i);
      if (place < 0) continue;
      parameter(weights, place) -=
          change(gradient.others[i] * scale, means_.others[i], squares_.others[i], rates);
    }
  }

 private:
  __device__ static float change(float g, float& mean, float& square, const AdamRates& rates) {
    constexpr float kBeta1 = 0.9F, kBeta2 = 0.999F, kEpsilon = 1e-5F;
    mean = kBeta1 * mean + (1 - kBeta1) * g;
    square = kBeta2 * square + (1 - kBeta2) * g * g;
    return __fdividef(rates.rate * mean, __fsqrt_rn(square) * rates.square_scale + kEpsilon);
  }

  ThreadParameters means_, squares_;
};

}  // namespace adtrain::gpu

#pragma once

#include "collection/gpu/Minibatch.cuh"

/// PPO's loss, differentiated by the networks' outputs and summed by state: the loss is the minibatch's mean
/// of −min(A·ratio, A·clip(ratio)) + value_coefficient · (value − target)² − entropy_coefficient · entropy.
namespace adtrain::gpu {

struct LossWeights {
  float lowest, highest;  ///< between which the ratio follows the gradient
  float value, entropy;   ///< twice the value loss's weight, and the entropy's
};

/// The derivatives of every sample's own loss.
struct SampleDerivatives {
  float by_log_probability[kLargestBatch];  ///< of its action
  float by_value[kLargestBatch];
};

/// The loss's derivatives by `outputs` of SharedNetworks.
using OutputDerivatives = float[kAllOutputs][kRows];

/// For the first kLargestBatch threads, one a sample; passes over those whose state has no row among `rows`
/// from the `begin`-th distinct state on. A barrier and `sum_by_state` must follow.
__device__ inline void differentiate_samples(const SharedNetworks& networks, const Minibatch& minibatch,
                                             const StateSlots& slots, const LossWeights& loss, int begin,
                                             int rows, SampleDerivatives& derivatives) {
  const int place = static_cast<int>(threadIdx.x);
  if (place >= minibatch.count) return;
  const Sample sample = minibatch.samples[place];
  const int row = slots[sample.code / 8] - begin, action = sample.code % 8;
  if (row < 0 || row >= rows) return;
  float probabilities[kActions], probability = 0;
  softmax(networks, row, probabilities);
  for (int a = 0; a < kActions; ++a) probability = a == action ? probabilities[a] : probability;
  const float share = 1 / static_cast<float>(minibatch.count);
  const float advantage = (sample.advantage - minibatch.advantage_mean) * minibatch.advantage_scale;
  const float ratio = __fdividef(probability, sample.probability);
  const bool clipped = advantage > 0 ? ratio > loss.highest : ratio < loss.lowest;
  derivatives.by_log_probability[place] = clipped ? 0 : -share * advantage * ratio;
  derivatives.by_value[place] = share * loss.value * (networks.outputs[kActions][row] - sample.target);
}

/// For the first kAllOutputs · kRows threads: an output and a row each. Sums in the order of the samples.
__device__ inline void sum_by_state(const SharedNetworks& networks, const Minibatch& minibatch,
                                    const LossWeights& loss, int begin, int rows,
                                    const SampleDerivatives& samples, OutputDerivatives& derivatives) {
  const int output = static_cast<int>(threadIdx.x) / kRows, row = static_cast<int>(threadIdx.x) % kRows;
  if (output >= kAllOutputs || row >= rows) return;
  const int state = minibatch.states[begin + row], code = 8 * state + output;
  const bool policy = output < kActions;
  const float* terms = policy ? samples.by_log_probability : samples.by_value;
  float own = 0, all = 0;  // of the action, and of the state
  int matches = 0;
#pragma unroll 4
  for (int i = 0; i < minibatch.count; ++i) {
    const int met = minibatch.samples[i].code;
    const bool matching = met / 8 == state;
    const float term = matching ? terms[i] : 0;
    all += term;
    own += met == code ? term : 0;
    matches += matching ? 1 : 0;
  }
  if (!policy) {
    derivatives[output][row] = all;
    return;
  }
  float probabilities[kActions], probability = 0;
  softmax(networks, row, probabilities);
  for (int a = 0; a < kActions; ++a) probability = a == output ? probabilities[a] : probability;
  if (loss.entropy > 0) {
    // d(−entropy)/d log p(a), as if the log-probabilities were free; the softmax below does the rest.
    const float factor = loss.entropy / static_cast<float>(minibatch.count) * static_cast<float>(matches);
    for (int a = 0; a < kActions; ++a) all += factor * probabilities[a] * (__logf(probabilities[a]) + 1);
    own += factor * probability * (__logf(probability) + 1);
  }
  derivatives[output][row] = own - probability * all;
}

}  // namespace adtrain::gpu

#include "collection/Mlp.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "collection/Lanes.h"
#include "collection/OrthogonalRows.h"

namespace adtrain {
namespace {

using Row = float[kUnits];

/// Draws rows that are orthogonal to each other and of length `gain`.
void initialise_rows(std::span<Row> rows, double gain, RandomStream& random) {
  const std::vector<std::vector<double>> basis = draw_orthogonal(rows.size(), kUnits, random);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < kUnits; ++i) rows[row][i] = static_cast<float>(gain * basis[row][i]);
  }
}

/// out[r] = bias + Σ_k in[r][k] · matrix[k] for kRows rows of 64, with sums kept in registers.
template <int kRows>
void multiply_rows(const float* in, const Row* matrix, const float* bias, float* out) {
  for (int column = 0; column < kUnits; column += 2 * kLanes) {
    Lanes sums[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = load(bias + column);
      sums[r][1] = load(bias + column + kLanes);
    }
    for (int k = 0; k < kUnits; ++k) {
      const Lanes left = load(matrix[k] + column), right = load(matrix[k] + column + kLanes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][0] += in[r * kUnits + k] * left;
        sums[r][1] += in[r * kUnits + k] * right;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      store(out + r * kUnits + column, sums[r][0]);
      store(out + r * kUnits + column + kLanes, sums[r][1]);
    }
  }
}

void multiply(const float* in, const Row* matrix, const float* bias, float* out, size_t rows) {
  for (; rows >= 4; rows -= 4, in += 4 * kUnits, out += 4 * kUnits) multiply_rows<4>(in, matrix, bias, out);
  if (rows == 3) multiply_rows<3>(in, matrix, bias, out);
  if (rows == 2) multiply_rows<2>(in, matrix, bias, out);
  if (rows == 1) multiply_rows<1>(in, matrix, bias, out);
}

/// matrix[k] = Σ_r in[r][k] · out[r]: the gradient of a matrix between `in` and `out`.
void outer_products(const float* in, const float* out, size_t rows, Row* matrix) {
  constexpr int kBlock = 4;
  for (int k = 0; k < kUnits; k += kBlock) {
    for (int column = 0; column < kUnits; column += 2 * kLanes) {
      Lanes sums[kBlock][2] = {};
      for (size_t r = 0; r < rows; ++r) {
        const float* row = out + r * kUnits + column;
        const Lanes left = load(row), right = load(row + kLanes);
        for (int i = 0; i < kBlock; ++i) {
          sums[i][0] += in[r * kUnits + static_cast<size_t>(k + i)] * left;
          sums[i][1] += in[r * kUnits + static_cast<size_t>(k + i)] * right;
        }
      }
      for (int i = 0; i < kBlock; ++i) {
        store(matrix[k + i] + column, sums[i][0]);
        store(matrix[k + i] + column + kLanes, sums[i][1]);
      }
    }
  }
}

/// sums = Σ_r factor(r) · rows[r].
template <class Factor>
void weighted_sum(const float* rows, size_t count, const Factor& factor, float* sums) {
  Lanes total[kUnits / kLanes] = {};
  for (size_t r = 0; r < count; ++r) {
    for (int i = 0; i < kUnits / kLanes; ++i) total[i] += factor(r) * load(rows + r * kUnits + i * kLanes);
  }
  for (int i = 0; i < kUnits / kLanes; ++i) store(sums + i * kLanes, total[i]);
}

void transpose_matrix(const Row* from, Row* to) {
  for (int row = 0; row < kUnits; row += kLanes) {
    for (int column = 0; column < kUnits; column += kLanes) {
      Lanes block[kLanes];
      for (int i = 0; i < kLanes; ++i) block[i] = load(from[row + i] + column);
      transpose(block);
      for (int i = 0; i < kLanes; ++i) store(to[column + i] + row, block[i]);
    }
  }
}

void apply_tanh(std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += kLanes) store(&values[i], tanh(load(&values[i])));
}

/// Multiplies derivatives with respect to tanh's outputs `values` by tanh's own derivative, 1 − value².
void through_tanh(std::span<float> deltas, std::span<const float> values) {
  for (size_t i = 0; i < deltas.size(); i += kLanes) {
    const Lanes value = load(&values[i]);
    store(&deltas[i], load(&deltas[i]) * (1.0F - value * value));
  }
}

}  // namespace

template <int kOutputs>
void Mlp<kOutputs>::initialise(RandomStream& random, double output_gain) {
  weights = {};
  initialise_rows(weights.input, std::numbers::sqrt2, random);
  initialise_rows(weights.hidden, std::numbers::sqrt2, random);
  initialise_rows(weights.output, output_gain, random);
}

template <int kOutputs>
void Mlp<kOutputs>::forward(std::span<const Cell> cells) {
  const size_t numbers = cells.size() * kUnits;
  if (first_.size() < numbers) {
    for (std::vector<float>* array : {&first_, &second_, &first_delta_, &second_delta_})
      array->resize(numbers);
    outputs_.resize(cells.size() * kOutputs);
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto x = static_cast<float>(cells[i].x), y = static_cast<float>(cells[i].y);
    for (int unit = 0; unit < kUnits; unit += kLanes) {
      const Lanes into = load(weights.input_bias + unit) + x * load(weights.input[0] + unit) +
                         y * load(weights.input[1] + unit);
      store(&first_[i * kUnits + static_cast<size_t>(unit)], tanh(into));
    }
  }
  multiply(first_.data(), weights.hidden, weights.hidden_bias, second_.data(), cells.size());
  apply_tanh(std::span(second_).first(numbers));
  for (size_t i = 0; i < cells.size(); ++i) {
    for (size_t output = 0; output < kOutputs; ++output) {
      Lanes products = {};
      for (int unit = 0; unit < kUnits; unit += kLanes) {
        products +=
            load(weights.output[output] + unit) * load(&second_[i * kUnits + static_cast<size_t>(unit)]);
      }
      outputs_[i * kOutputs + output] = weights.output_bias[output] + sum(products);
    }
  }
}

template <int kOutputs>
void Mlp<kOutputs>::backward(std::span<const Cell> cells, std::span<const float> output_gradients) {
  backward_output(output_gradients, cells.size());
  backward_hidden(cells.size());
  backward_input(cells);
}

template <int kOutputs>
void Mlp<kOutputs>::backward_output(std::span<const float> output_gradients, size_t count) {
  for (size_t output = 0; output < kOutputs; ++output) {
    const auto derivative = [&](size_t cell) { return output_gradients[cell * kOutputs + output]; };
    weighted_sum(second_.data(), count, derivative, gradient.output[output]);
    float total = 0;
    for (size_t cell = 0; cell < count; ++cell) total += derivative(cell);
    gradient.output_bias[output] = total;
  }
  for (size_t cell = 0; cell < count; ++cell) {
    weighted_sum(
        weights.output[0], kOutputs,
        [&](size_t output) { return output_gradients[cell * kOutputs + output]; },
        &second_delta_[cell * kUnits]);
  }
  through_tanh(std::span(second_delta_).first(count * kUnits), second_);
}

template <int kOutputs>
void Mlp<kOutputs>::backward_hidden(size_t count) {
  constexpr float kNoBias[kUnits] = {};
  outer_products(first_.data(), second_delta_.data(), count, gradient.hidden);
  weighted_sum(
      second_delta_.data(), count, [](size_t) { return 1.0F; }, gradient.hidden_bias);
  transpose_matrix(weights.hidden, hidden_transposed_);
  multiply(second_delta_.data(), hidden_transposed_, kNoBias, first_delta_.data(), count);
  through_tanh(std::span(first_delta_).first(count * kUnits), first_);
}

template <int kOutputs>
void Mlp<kOutputs>::backward_input(std::span<const Cell> cells) {
  const float* deltas = first_delta_.data();
  weighted_sum(
      deltas, cells.size(), [&](size_t i) { return static_cast<float>(cells[i].x); }, gradient.input[0]);
  weighted_sum(
      deltas, cells.size(), [&](size_t i) { return static_cast<float>(cells[i].y); }, gradient.input[1]);
  weighted_sum(
      deltas, cells.size(), [](size_t) { return 1.0F; }, gradient.input_bias);
}

template class Mlp<1>;
template class Mlp<kActions>;

}  // namespace adtrain

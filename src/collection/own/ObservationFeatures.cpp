#include "collection/own/ObservationFeatures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "environments/worker/TypedNumbers.h"

namespace adtrain {

ObservationFeatures::ObservationFeatures(Space space) : space_(std::move(space)), size_(space_.size()) {
  if (space_.kind != Space::Kind::kBox)
    size_ = std::accumulate(space_.values.begin(), space_.values.end(), int64_t{0});
}

void ObservationFeatures::write(std::span<const std::byte> rows, std::span<float> features) const {
  const auto elements = static_cast<size_t>(space_.size()), width = static_cast<size_t>(size_);
  with_type(space_.type, [&]<class Number>(Number*) {
    if (space_.kind == Space::Kind::kBox) {
      for (size_t i = 0; i < features.size(); ++i)
        features[i] = static_cast<float>(static_cast<double>(number_at<Number>(rows.data(), i)));
      return;
    }
    std::ranges::fill(features, 0.0F);
    for (size_t row = 0; row < features.size() / width; ++row) {
      size_t begin = row * width;
      for (size_t element = 0; element < elements; ++element) {
        const auto value = static_cast<double>(number_at<Number>(rows.data(), row * elements + element));
        features[begin + static_cast<size_t>(static_cast<int64_t>(value) - space_.start[element])] = 1;
        begin += static_cast<size_t>(space_.values[element]);
      }
    }
  });
}

void RunningNormalisation::observe(std::span<const float> features) {
  const size_t width = mean_.size(), rows = features.size() / width;
  const auto count = static_cast<double>(rows), total = count_ + count;
  for (size_t i = 0; i < width; ++i) {
    double sum = 0, squares = 0;
    for (size_t row = 0; row < rows; ++row) sum += features[row * width + i];
    const double mean = sum / count;
    for (size_t row = 0; row < rows; ++row) squares += std::pow(features[row * width + i] - mean, 2);
    const double difference = mean - mean_[i];
    mean_[i] += difference * count / total;
    variance_[i] =
        (variance_[i] * count_ + squares + difference * difference * count_ * count / total) / total;
  }
  count_ = total;
}

void RunningNormalisation::apply(std::span<float> features) const {
  constexpr double kEpsilon = 1e-8;
  constexpr float kFarthest = 10;
  const size_t width = mean_.size();
  for (size_t i = 0; i < features.size(); ++i) {
    const size_t feature = i % width;
    const double normal = (features[i] - mean_[feature]) / std::sqrt(variance_[feature] + kEpsilon);
    features[i] = std::clamp(static_cast<float>(normal), -kFarthest, kFarthest);
  }
}

}  // namespace adtrain

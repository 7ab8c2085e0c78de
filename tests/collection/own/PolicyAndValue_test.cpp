#include "collection/own/PolicyAndValue.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "collection/own/LearntLessons.h"
#include "support/FreshSeed.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSamples = 90, kFeatures = 7, kUnits = 12;

struct Case {
  std::string name;
  Space action;
  double entropy_coefficient;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"discrete", Space::discrete(4), 0},
      {"multi_discrete", Space::multi_discrete({3}, {2, 5, 3}), 0.02},
      {"box", Space::box({3}, {-1}, {1}), 0.01},
      {"one_number", Space::box({}, {-1}, {1}), 0},
  };
  return all;
}

void write_floats(const fs::path& path, const float* values, size_t count) {
  write_file(path, std::string(reinterpret_cast<const char*>(values), count * sizeof(float)));
}
void write_floats(const fs::path& path, const at::Tensor& values) {
  write_floats(path, values.contiguous().const_data_ptr<float>(), static_cast<size_t>(values.numel()));
}

std::vector<double> read_doubles(const fs::path& path) {
  const std::string bytes = read_file(path);
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The largest difference, relative to the largest number.
double difference(std::span<const float> found, const std::vector<double>& expected) {
  double largest = 1e-3, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(found[i] - expected[i]));
  }
  return worst / largest;
}
std::span<const float> numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

at::Tensor random_numbers(std::vector<int64_t> shape, double spread, RandomStream& random) {
  at::Tensor numbers = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < numbers.numel(); ++i)
    numbers.mutable_data_ptr<float>()[i] = static_cast<float>(spread * random.normal());
  return numbers;
}

/// One update of a policy that has moved a little since it drew the actions: some ratios are clipped.
struct Update {
  Update(const Case& which, RandomStream& random)
      : distribution(which.action),
        settings(short_learning(1).ppo),
        networks(with_entropy(which.entropy_coefficient), kFeatures, kUnits, distribution, random) {
    for (float& parameter : networks.parameters()) parameter += 0.2F * static_cast<float>(random.normal());
    samples.features = random_numbers({kSamples, kFeatures}, 1, random);
    samples.actions = at::empty({kSamples, distribution.size()}, at::kFloat);
    samples.advantages = random_numbers({kSamples}, 1, random);
    samples.targets = random_numbers({kSamples}, 2, random);
    const c10::NoGradGuard no_gradients;
    const at::Tensor policy = networks.evaluate(samples.features).policy;
    std::span<float> actions(samples.actions.mutable_data_ptr<float>(),
                             static_cast<size_t>(samples.actions.numel()));
    distribution.draw(policy, networks.log_deviations(), random, actions);
    samples.log_probabilities =
        distribution.log_probabilities(policy, networks.log_deviations(), samples.actions) +
        random_numbers({kSamples}, 0.3, random);
  }
  PpoSettings with_entropy(double coefficient) {
    settings.entropy_coefficient = coefficient;
    return settings;
  }

  ActionDistribution distribution;
  PpoSettings settings;
  PolicyAndValue networks;
  OwnSamples samples;
};

nlohmann::json described(const Case& which, const Update& update, const nlohmann::json& minibatches) {
  return {{"name", which.name},
          {"kind", which.action.kind == Space::Kind::kBox ? "box" : "discrete"},
          {"values", which.action.values},
          {"features", kFeatures},
          {"units", kUnits},
          {"outputs", update.distribution.policy_numbers()},
          {"action_size", update.distribution.size()},
          {"samples", kSamples},
          {"learning_rate", update.settings.learning_rate},
          {"clip", update.settings.clip_range},
          {"entropy", which.entropy_coefficient},
          {"value", update.settings.value_coefficient},
          {"max_norm", update.settings.max_grad_norm},
          {"minibatches", minibatches}};
}

TEST(PolicyAndValue, UpdatesAsPyTorchDoesInEverySpace) {
  RandomStream random(fresh_seed());
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Update>> updates;
  nlohmann::json list = nlohmann::json::array();
  const std::vector<int64_t> sizes = {40, 1, 17, 32};  // a lone sample's advantage is not normalised
  std::vector<std::vector<int64_t>> minibatches;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    minibatches.emplace_back(size);
    std::iota(minibatches.back().begin(), minibatches.back().end(), begin);
    begin += size;
  }
  for (const Case& which : cases()) {
    const Update& update = *updates.emplace_back(std::make_unique<Update>(which, random));
    list.push_back(described(which, update, minibatches));
    const auto file = [&](const char* what) { return folder.path() / (which.name + "." + what); };
    const std::span<float> parameters = updates.back()->networks.parameters();
    write_floats(file("parameters"), parameters.data(), parameters.size());
    write_floats(file("features"), update.samples.features);
    write_floats(file("actions"), update.samples.actions);
    write_floats(file("old"), update.samples.log_probabilities);
    write_floats(file("advantages"), update.samples.advantages);
    write_floats(file("targets"), update.samples.targets);
  }
  write_file(folder.path() / "cases.json", list.dump());
  const Finished python =
      run_shell(quoted(ADTRAIN_PYTHON) + " " ADTRAIN_SOURCE_DIR "/tests/collection/own/ppo_reference.py " +
                quoted(folder.path().string()));
  ASSERT_EQ(python.exit_code, 0) << python.output;

  for (size_t i = 0; i < cases().size(); ++i) {
    Update& update = *updates[i];
    const auto expected = [&](const char* what) {
      return read_doubles(folder.path() / (cases()[i].name + "." + what));
    };
    SCOPED_TRACE(cases()[i].name);
    const auto indices = [&](size_t which) { return at::tensor(minibatches[which], at::kLong); };
    const at::Tensor policy = update.networks.evaluate(update.samples.features).policy;
    const at::Tensor log_probabilities = update.distribution.log_probabilities(
        policy, update.networks.log_deviations(), update.samples.actions);
    const at::Tensor entropies = update.distribution.entropies(policy, update.networks.log_deviations());
    EXPECT_LT(difference(numbers_of(log_probabilities), expected("log_prob")), 1e-5);
    EXPECT_LT(difference(numbers_of(entropies.contiguous()), expected("entropy")), 1e-5);
    EXPECT_NEAR(update.networks.loss(update.samples, indices(0)).item<double>(), expected("loss")[0], 1e-4);
    update.networks.update(update.samples, indices(0));
    EXPECT_LT(difference(update.networks.gradient(), expected("gradient")), 1e-4);
    for (size_t next = 1; next < minibatches.size(); ++next)
      update.networks.update(update.samples, indices(next));
    EXPECT_LT(difference(update.networks.parameters(), expected("end")), 5e-4);
  }
}

TEST(PolicyAndValue, StartsOrthogonalWithStableBaselines3sGains) {
  RandomStream random(7);
  const ActionDistribution distribution(Space::discrete(4));
  PolicyAndValue networks(short_learning(1).ppo, kFeatures, kUnits, distribution, random);
  const auto matrix = [&](int64_t offset, int64_t rows, int64_t columns) {
    return at::from_blob(networks.parameters().data() + offset, {rows, columns}, at::kFloat).clone();
  };
  const auto check = [](const at::Tensor& product, double gain) {
    EXPECT_TRUE(at::allclose(product, gain * gain * at::eye(product.size(0)), 1e-5, 1e-6)) << product;
  };
  int64_t place = 0;
  const at::Tensor input = matrix(place, kUnits, kFeatures);
  check(input.t().mm(input), std::sqrt(2));  // taller than wide: its columns are
  place += kUnits * (kFeatures + 1);
  const at::Tensor hidden = matrix(place, kUnits, kUnits);
  check(hidden.mm(hidden.t()), std::sqrt(2));
  place += kUnits * (kUnits + 1);
  const at::Tensor output = matrix(place, 4, kUnits);
  check(output.mm(output.t()), 0.01);
  EXPECT_TRUE(at::all(matrix(place + 4 * kUnits, 1, 4) == 0).item<bool>()) << "biases";
}

}  // namespace
}  // namespace adtrain

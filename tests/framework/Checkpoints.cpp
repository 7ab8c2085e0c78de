#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "adtrain/checkpoint.h"
#include "adtrain/data_parallel.h"
#include "adtrain/error.h"
#include "framework/TestedGroup.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Rank 0's, for all; gone when all have done with it.
class SharedFolder {
 public:
  SharedFolder() : path_(group().text_of_root(own_.path().string())) {}
  ~SharedFolder() { group().barrier(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  TemporaryFolder own_;
  fs::path path_;
};

/// A network that is trained a little. Its values before that differ between ranks.
struct Training {
  torch::nn::Sequential network = make();
  std::unique_ptr<DataParallel> parallel = std::make_unique<DataParallel>(*network, group());
  torch::optim::AdamW optimizer{parallel->main_parameters(), torch::optim::AdamWOptions(0.1)};
  at::Tensor cursor = torch::zeros({1}, at::kLong);

  static torch::nn::Sequential make() {
    torch::manual_seed(static_cast<uint64_t>(group().rank()));
    torch::nn::Sequential network(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8));
    network->to(group().device());
    return network;
  }
  void track_by(Checkpoints& checkpoints) {
    checkpoints.track(*network);
    checkpoints.track(optimizer);
    checkpoints.track("cursor", cursor);
  }
  void step() {
    const at::Tensor x =
        torch::sin(torch::arange(24, torch::kFloat) + group().rank() + cursor.item<int64_t>());
    parallel->backward(network->forward(x.view({6, 4}).to(group().device())).pow(3).sum());
    optimizer.step();
    cursor += 1;
  }
  /// Parameters, and not the batch norm's statistics, which are each rank's own.
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> values;
    for (const at::Tensor& parameter : network->parameters())
      values.push_back(parameter.detach().cpu().clone());
    return values;
  }
};

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t index = 0; same && index < a.size(); ++index) same = at::equal(a[index], b[index]);
  return same;
}

/// The exit code and text of the error that `action` must end with.
template <class Action>
std::pair<int, std::string> error_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return {exit_code_of(error), error.what()};
  }
  return {0, "no error"};
}

TEST(Checkpoints, AResumedRunGoesOnAsOneThatWasNeverInterrupted) {
  const SharedFolder folder;
  Training whole;
  {
    Checkpoints checkpoints(folder.path() / "c", group());
    whole.track_by(checkpoints);
    EXPECT_FALSE(checkpoints.resume()) << "there is none";
    whole.step();
    whole.step();
    checkpoints.save(2);
    whole.step();
    whole.step();
  }
  Training resumed;
  Checkpoints checkpoints(folder.path() / "c", group());
  resumed.track_by(checkpoints);
  EXPECT_EQ(checkpoints.resume(), 2);
  EXPECT_EQ(resumed.cursor.item<int64_t>(), 2);
  resumed.step();
  resumed.step();
  EXPECT_TRUE(equal(resumed.values(), whole.values()));
}

TEST(Checkpoints, PassesOverADamagedOne) {
  const SharedFolder folder;
  Training training;
  Checkpoints checkpoints(folder.path(), group());
  training.track_by(checkpoints);
  training.step();
  checkpoints.save(1);
  const std::vector<at::Tensor> first = training.values();
  training.step();
  checkpoints.save(2);
  if (group().is_root()) fs::resize_file(folder.path() / "step-2" / "model.safetensors", 100);
  EXPECT_EQ(checkpoints.resume(), 1);
  EXPECT_TRUE(equal(training.values(), first));
}

TEST(Checkpoints, NothingThatIsNotFiniteIsSaved) {
  const SharedFolder folder;
  Training training;
  Checkpoints checkpoints(folder.path(), group());
  training.track_by(checkpoints);
  {
    const torch::NoGradGuard no_gradients;
    training.network->parameters()[1].fill_(std::numeric_limits<float>::infinity());
  }
  const auto [code, text] = error_of([&] { checkpoints.save(1); });
  EXPECT_EQ(code, 6);
  EXPECT_THAT(text, HasSubstr("0.bias has a value that is not finite after step 1"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Checkpoints, ListsAllThatIsNotAsItIsTracked) {
  const SharedFolder folder;
  Training training;
  Checkpoints saved(folder.path(), group());
  saved.track(*training.network);
  saved.save(1);
  torch::nn::Sequential other(torch::nn::Linear(4, 9));
  torch::optim::SGD optimizer(other->parameters(), 0.1);
  Checkpoints checkpoints(folder.path(), group());
  checkpoints.track(*other);
  checkpoints.track(optimizer);
  checkpoints.track("cursor", training.cursor);
  const auto [code, text] = error_of([&] { checkpoints.resume(); });
  EXPECT_EQ(code, 5);
  for (const char* wrong : {"0.weight is Float(8x4), expected Float(9x4)", "1.running_mean is not tracked",
                            "cursor is missing", "torch_optimizer.0 is missing"})
    EXPECT_THAT(text, HasSubstr(wrong));
}

TEST(Checkpoints, AnotherOptimizersStateIsRefused) {
  const SharedFolder folder;
  Training training;
  training.step();
  Checkpoints saved(folder.path(), group());
  saved.track(training.optimizer);
  saved.save(1);
  torch::optim::SGD fewer({training.network->parameters()[0]}, torch::optim::SGDOptions(0.1).momentum(0.9));
  Checkpoints checkpoints(folder.path(), group());
  checkpoints.track(fewer);
  const auto [code, text] = error_of([&] { checkpoints.resume(); });
  EXPECT_EQ(code, 5);
  EXPECT_THAT(text, HasSubstr("torch_optimizer.0"));
}

TEST(Checkpoints, AFolderThatCannotBeWrittenIsAnErrorOfAllRanks) {
  const SharedFolder folder;
  Training training;
  if (group().is_root()) torch::save(torch::ones({1}), (folder.path() / "file").string());
  Checkpoints checkpoints(folder.path() / "file", group());
  training.track_by(checkpoints);
  EXPECT_EQ(error_of([&] { checkpoints.save(1); }).first, 5);
}

TEST(Checkpoints, NamesAreGivenOnce) {
  const SharedFolder folder;
  Checkpoints checkpoints(folder.path(), group());
  at::Tensor tensor = torch::full({2}, group().rank() + 1.0);
  checkpoints.track("module.weight", tensor);  // as Python's wrapper would call `weight`
  EXPECT_THROW(checkpoints.track("weight", tensor), std::invalid_argument);
  checkpoints.save(3);
  tensor.zero_();
  EXPECT_EQ(checkpoints.resume(), 3);
  EXPECT_EQ(tensor[1].item<double>(), 1) << "rank 0's";
}

}  // namespace
}  // namespace adtrain

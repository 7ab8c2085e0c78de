#include "checkpoint/QuantisedTensors.h"

#include <algorithm>
#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "base/Error.h"
#include "checkpoint/SafetensorsBytes.h"
#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/Quantise.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using ::testing::HasSubstr;

QuantisedMatrices some_matrices() {
  QuantisedMatrices matrices;
  const at::Tensor weights = at::randn({33, 70});
  matrices["blocks.0.mlp.up.weight"] = kernels::quantised_4bit(weights, QuantisedCode::nf4, false);
  matrices["blocks.0.mlp.down.weight"] = kernels::quantised_4bit(weights, QuantisedCode::nf4, true);
  matrices["blocks.1.mlp.up.weight"] = kernels::quantised_4bit(weights, QuantisedCode::fp4, true);
  matrices["blocks.1.mlp.down.weight"] = kernels::quantised_rows(weights);
  return matrices;
}

std::vector<NamedTensor> tensors_of(const QuantisedMatrices& matrices) {
  std::vector<NamedTensor> tensors = {{"embed.bias", at::randn({5})}};
  for (const auto& [name, matrix] : matrices) {
    for (NamedTensor& tensor : quantised_tensors(name, matrix)) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void expect_equal(const QuantisedMatrix& found, const QuantisedMatrix& expected) {
  EXPECT_EQ(found.code, expected.code);
  EXPECT_EQ(found.out_features, expected.out_features);
  EXPECT_EQ(found.in_features, expected.in_features);
  EXPECT_EQ(found.nested_offset, expected.nested_offset);
  for (size_t i = 0; i < found.tensors().size(); ++i) {
    const at::Tensor a = found.tensors()[i], b = expected.tensors()[i];
    ASSERT_EQ(a.defined(), b.defined());
    if (!a.defined()) continue;
    EXPECT_EQ(a.scalar_type(), b.scalar_type());
    EXPECT_TRUE(at::equal(a, b)) << i;
  }
}

TEST(QuantisedTensors, AreReadBackAsTheyWere) {
  const QuantisedMatrices matrices = some_matrices();
  const std::vector<NamedTensor> tensors = tensors_of(matrices);
  EXPECT_TRUE(hold_quantised(tensors));
  const std::string bytes = safetensors_bytes(tensors);
  const QuantisedTensors read = QuantisedTensors::of(parse_safetensors(bytes, "file").tensors, "file");
  ASSERT_EQ(read.matrices.size(), matrices.size());
  for (const auto& [name, matrix] : matrices) {
    SCOPED_TRACE(name);
    expect_equal(read.matrices.at(name), matrix);
  }
  ASSERT_EQ(read.others.size(), 1U);
  EXPECT_EQ(read.others.front().name, "embed.bias");
  EXPECT_FALSE(hold_quantised(read.others));
}

TEST(QuantisedTensors, AreThoseOfTheRealPackageBothWays) {
  const QuantisedMatrices matrices = some_matrices();
  std::vector<NamedTensor> ours = tensors_of(matrices);
  std::erase_if(ours, [](const NamedTensor& tensor) { return tensor.name == "embed.bias"; });
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "ours.safetensors", ours, {{"format", "pt"}});
  const Finished python = run_shell(quoted(ADTRAIN_PYTHON) + " " +
                                    quoted(ADTRAIN_SOURCE_DIR "/tests/checkpoint/read_quantised.py") + " " +
                                    quoted(folder.path() / "ours.safetensors") + " " +
                                    quoted(folder.path() / "theirs.safetensors") + " 2>&1");
  if (python.exit_code == 77) GTEST_SKIP() << python.output;
  ASSERT_EQ(python.exit_code, 0) << python.output;
  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, tensor] : read_safetensors(folder.path() / "theirs.safetensors").tensors)
    theirs.emplace(name, tensor);
  std::vector<NamedTensor> without_values;
  for (const auto& [name, matrix] : matrices) {
    EXPECT_TRUE(at::equal(theirs.at(name + ".values"), kernels::dequantised(matrix, at::kFloat))) << name;
    theirs.erase(name + ".values");
  }
  ASSERT_EQ(theirs.size(), ours.size());
  for (const auto& [name, tensor] : ours) {
    ASSERT_TRUE(theirs.contains(name)) << name;
    EXPECT_TRUE(theirs.at(name).scalar_type() == tensor.scalar_type() && at::equal(theirs.at(name), tensor))
        << name;
    without_values.push_back({name, theirs.at(name)});
  }
  const QuantisedTensors read = QuantisedTensors::of(without_values, "theirs");
  for (const auto& [name, matrix] : matrices) expect_equal(read.matrices.at(name), matrix);
}

TEST(QuantisedTensors, ThatDoNotBelongTogetherAreRefusedByName) {
  const auto refusal = [](const std::function<void(std::vector<NamedTensor>&)>& spoil) -> std::string {
    std::vector<NamedTensor> tensors = tensors_of(some_matrices());
    spoil(tensors);
    try {
      QuantisedTensors::of(tensors, "file.safetensors");
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "none";
  };
  const auto tensor = [](std::vector<NamedTensor>& tensors, const std::string& name) -> at::Tensor& {
    return std::ranges::find(tensors, name, &NamedTensor::name)->tensor;
  };
  const std::string up = "blocks.0.mlp.up.weight", down = "blocks.0.mlp.down.weight";
  EXPECT_THAT(refusal([&](auto& tensors) {
                std::erase_if(tensors, [&](const auto& one) { return one.name == up + ".absmax"; });
              }),
              HasSubstr("file.safetensors: 'blocks.0.mlp.up.weight.absmax' is missing"));
  EXPECT_THAT(refusal([&](auto& tensors) { tensor(tensors, up) = at::zeros({7}, at::kByte); }),
              HasSubstr("'blocks.0.mlp.up.weight' has 7 values of Byte, expected 1155 of Byte"));
  EXPECT_THAT(refusal([&](auto& tensors) { tensor(tensors, down + ".absmax") = at::zeros({37}); }),
              HasSubstr("expected 37 of Byte"));
  EXPECT_THAT(refusal([&](auto& tensors) {
                tensor(tensors, up + ".quant_state.bitsandbytes__nf4") = at::zeros({3}, at::kByte);
              }),
              HasSubstr("says no shape of two extents"));
  EXPECT_THAT(refusal([&](auto& tensors) {
                at::Tensor& state = tensor(tensors, up + ".quant_state.bitsandbytes__nf4");
                state = state.clone();
                const auto text = std::string_view(reinterpret_cast<const char*>(state.data_ptr<uint8_t>()),
                                                   static_cast<size_t>(state.numel()));
                state[static_cast<int64_t>(text.find("64"))] = '3';
              }),
              HasSubstr("has blocks other than of 64"));
  EXPECT_THAT(refusal([&](auto& tensors) {
                tensor(tensors, "blocks.1.mlp.down.weight_format") = at::ones({}, at::kByte);
              }),
              HasSubstr("says another order of weights than by row"));
  EXPECT_THAT(refusal([&](auto& tensors) {
                tensor(tensors, "blocks.1.mlp.down.weight") = at::zeros({33, 70});
              }),
              HasSubstr("is no matrix of signed bytes"));
}

}  // namespace
}  // namespace adtrain

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "Weights.h"
#include "checkpoint/Safetensors.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTuned = R"(include: small.yaml
init_from: runs/small
freeze: [transformer.blocks.0, "*.norm_2", embed_context.bias]
grid_size: 4
traj_dir: other
max_grad_norm: 0
first_bucket_megabytes: 0.0005
bucket_megabytes: 0.005
run_name: tuned
)";

std::map<std::string, at::Tensor> weights(const SmallRun& runs, const std::string& name) {
  std::map<std::string, at::Tensor> tensors;
  const auto path = runs.run(name) / "checkpoints" / "latest" / "model.safetensors";
  for (const NamedTensor& tensor : read_safetensors(path).tensors) tensors[tensor.name] = tensor.tensor;
  return tensors;
}

bool is_frozen(const std::string& name) {
  return name.starts_with("transformer.blocks.0.") || name.find(".norm_2.") != std::string::npos ||
         name == "embed_context.bias";
}

TEST(FineTuning, ARunBeginsWithAnothersWeightsInOtherSpacesAndFreezesSome) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  small.write("tuned.yaml", kTuned);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  ASSERT_EQ(small.adtrain("collect tuned.yaml").exit_code, 0);
  const auto source = weights(small, "small");

  const Finished valid = small.adtrain("validate tuned.yaml --json");
  ASSERT_EQ(valid.exit_code, 0) << valid.output;
  const json report = json::parse(valid.output);
  EXPECT_EQ(report["init_from"]["new"], json::array({"embed_query_state.weight"}));
  EXPECT_EQ(report["freeze"]["frozen"].size(), 11U);
  EXPECT_THAT(report["kernels"].dump(), HasSubstr("from the loss to the first parameter that trains"));

  const Finished whole = small.mpirun(2, "tuned.yaml --set run_name=whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(
      whole.output,
      AllOf(HasSubstr("init_from runs/small: runs/small/checkpoints/step-20 (step 20), CRC-32 "),
            HasSubstr("22 of 23 tensors are taken"),
            HasSubstr("new:      embed_query_state.weight [16, 16], found [25, 16]"),
            HasSubstr("frozen: embed_context.bias, transformer.blocks.0, transformer.blocks.1.norm_2")));
  const json begun = json::parse(small.read("runs/whole/run.json")).at("init_from");
  EXPECT_EQ(begun["step"], 20);
  EXPECT_EQ(begun["taken"], 22);
  EXPECT_THAT(begun["checkpoint"].get<std::string>(), testing::EndsWith("runs/small/checkpoints/step-20"));
  int64_t trained = 0;
  for (const auto& [name, tensor] : weights(small, "whole")) {
    if (name == "embed_query_state.weight") {
      EXPECT_EQ(tensor.size(0), 16);
    } else {
      EXPECT_EQ(at::equal(tensor, source.at(name)), is_frozen(name)) << name;
    }
    if (!is_frozen(name)) trained += (tensor.numel() + 63) / 64 * 64;
  }
  const json parts = small.metrics("whole", "memory_parts").back().at("memory_parts");
  EXPECT_EQ(parts["moments"], json::array({8 * trained, 8 * trained}));
  EXPECT_EQ(parts["gradients"], json::array({4 * trained, 4 * trained}));

  const Finished one = small.adtrain("tuned.yaml --set run_name=one");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  EXPECT_LT(largest_difference(small, "whole", "one"), 1e-5);

  // A run goes on with its own weights, also where the source is gone.
  const std::string sharded = "tuned.yaml --set run_name=parts --set shard_optimizer=true ";
  ASSERT_EQ(small.mpirun(2, sharded + "--stop-after 7").exit_code, 75);
  ASSERT_EQ(small.adtrain("tuned.yaml --set run_name=thawed --stop-after 3").exit_code, 75);
  std::filesystem::remove_all(small.run());
  const Finished resumed = small.mpirun(2, sharded + "--resume");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, AllOf(HasSubstr("init_from is not read again"), Not(HasSubstr("begin at 0"))));
  EXPECT_TRUE(small.state("parts", 20) == small.state("whole", 20)) << "the whole run's checkpoint";
  EXPECT_EQ(json::parse(small.read("runs/parts/run.json")).at("init_from")["crc32"], begun["crc32"]);
  EXPECT_EQ(json::parse(small.read("runs/parts/run.json")).at("starts").size(), 2U);

  const Finished thawed =
      small.adtrain("tuned.yaml --set run_name=thawed --resume --stop-after 6 --set freeze=pred_action");
  ASSERT_EQ(thawed.exit_code, 75) << thawed.output;
  EXPECT_THAT(thawed.output,
              AllOf(HasSubstr("changed: freeze"),
                    HasSubstr("moments of 11 tensors that were frozen before and train now begin"),
                    HasSubstr("moments of 2 tensors that are frozen now are left out")));

  const Finished gone = small.adtrain("tuned.yaml --set run_name=late");
  EXPECT_EQ(gone.exit_code, 5) << gone.output;
  EXPECT_THAT(gone.output, AllOf(HasSubstr("tuned.yaml:2: init_from: runs/small does not exist"),
                                 HasSubstr("runs holds ")));
  const Finished misspelt = small.adtrain("validate tuned.yaml --set init_from=null --set freeze=pred_acton");
  EXPECT_EQ(misspelt.exit_code, 2) << misspelt.output;
  EXPECT_THAT(misspelt.output, HasSubstr("did you mean pred_action?"));
}

}  // namespace
}  // namespace adtrain

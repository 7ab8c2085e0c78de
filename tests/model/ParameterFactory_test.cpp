#include "model/ParameterFactory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Random.h"

namespace adtrain {
namespace {

/// The first difference, or the number of values.
template <class Draw>
int64_t equal_values(const at::Tensor& found, uint64_t key, Draw draw) {
  RandomStream stream(key);
  const auto* const values = found.const_data_ptr<float>();
  for (int64_t i = 0; i < found.numel(); ++i) {
    if (values[i] != static_cast<float>(draw(stream))) return i;
  }
  return found.numel();
}

/// Of parameters so large that several threads draw them.
TEST(ParameterFactory, AllCoresDrawWhatOneWould) {
  constexpr uint64_t kSeed = 7;
  constexpr double kBound = 0.3, kDeviation = 0.02;
  ParameterFactory factory(kSeed);
  const at::Tensor normal = factory.normal("normal", {700, 1001}, kDeviation);
  const at::Tensor uniform = factory.uniform("uniform", {3, 262144}, kBound);
  const at::Tensor constant = factory.constant("constant", {600000}, 4);
  EXPECT_EQ(equal_values(normal, seed_of(kSeed, 0),
                         [&](RandomStream& stream) { return kDeviation * stream.normal(); }),
            normal.numel());
  EXPECT_EQ(equal_values(uniform, seed_of(kSeed, 1),
                         [&](RandomStream& stream) { return kBound * (2.0 * stream.uniform() - 1.0); }),
            uniform.numel());
  EXPECT_TRUE(constant.eq(4).all().item<bool>());
}

TEST(ParameterFactory, ParametersToBeLoadedAreLikeThoseThatAreDrawn) {
  ParameterFactory drawn(7), to_be_loaded = ParameterFactory::to_be_loaded(7);
  const at::Tensor parameter = to_be_loaded.normal("weight", {3, 4}, 0.02);
  drawn.normal("weight", {3, 4}, 0.02);
  EXPECT_EQ(parameter.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_TRUE(parameter.is_cpu() && parameter.requires_grad());
  EXPECT_EQ(to_be_loaded.take().front().name, drawn.take().front().name);
}

}  // namespace
}  // namespace adtrain

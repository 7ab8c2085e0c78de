#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "placement/DeviceMap.h"
#include "support/FreshSeed.h"
#include "support/Python.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using nlohmann::json;

/// A network of random sizes, limits in the neighbourhood of what it takes, and how to place it.
json random_case(std::mt19937_64& random) {
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  json result = {{"embed", number(1, 2000)}, {"head", number(1, 2000)}, {"blocks", number(1, 12)}};
  int64_t block = 0;
  for (int64_t layer = number(1, 6); layer > 0; --layer) {
    result["block"].push_back(number(1, 400));
    block += result["block"].back().get<int64_t>();
  }
  result["tied"] = number(0, 3) == 0;
  if (result["tied"]) result["head"] = result["embed"];
  const char* const modes[] = {"sequential", "balanced", "balanced_low_0"};
  result["mode"] = modes[number(0, 2)];
  const int64_t total = 4 * (result["embed"].get<int64_t>() + result["head"].get<int64_t>() +
                             result["blocks"].get<int64_t>() * block);
  const int64_t gpus = number(1, 4);
  // With balanced_low_0 accelerate counts the GPUs without those of limit 0, and takes the first so many.
  const bool zeros = result["mode"] != "balanced_low_0";
  for (int64_t gpu = 0; gpu < gpus; ++gpu)
    result["limits"][std::to_string(gpu)] = zeros && number(0, 9) == 0 ? 0 : number(1, 2 * total);
  if (number(0, 1) == 0) result["limits"]["cpu"] = number(1, 2 * total);
  return result;
}

std::vector<PlacedModule> modules_of(const json& given) {
  std::vector<SizedParameter> parameters = {{"embed.weight", 4 * given["embed"].get<int64_t>()}};
  for (int64_t block = 0; block < given["blocks"]; ++block) {
    for (size_t layer = 0; layer < given["block"].size(); ++layer) {
      parameters.push_back({"blocks." + std::to_string(block) + ".layer_" + std::to_string(layer) + ".weight",
                            4 * given["block"][layer].get<int64_t>()});
    }
  }
  if (given["tied"]) {
    parameters.push_back({"head.weight", 0, "embed.weight"});
  } else {
    parameters.push_back({"head.weight", 4 * given["head"].get<int64_t>()});
  }
  return placed_modules(parameters);
}

json map_of(const json& given) {
  const std::string mode = given["mode"];
  const MapMode chosen = mode == "sequential" ? MapMode::kSequential
                         : mode == "balanced" ? MapMode::kBalanced
                                              : MapMode::kBalancedLow0;
  try {
    json devices;
    const DeviceMap map = DeviceMap::automatic(modules_of(given), MemoryLimits::parse(given["limits"].dump()),
                                               chosen, {.streamed = 1});
    for (const DeviceMap::Row& row : map.rows()) devices.push_back(row.device.text());
    return devices;
  } catch (const ConfigError&) {
    return "nothing";
  }
}

TEST(AcceleratePeer, MapsOfRandomNetworksAreEqual) {
  if (!has_python_package("accelerate")) GTEST_SKIP() << "no accelerate in the Python of the tests";
  std::mt19937_64 random(fresh_seed());
  json cases;
  for (int i = 0; i < 300; ++i) cases.push_back(random_case(random));
  const TemporaryFolder folder;
  const std::string file = folder.path() / "cases.json";
  std::ofstream(file) << cases.dump();
  const Finished peer = run_shell(quoted(ADTRAIN_PYTHON) + " " +
                                  quoted(ADTRAIN_SOURCE_DIR "/tests/placement/accelerate_maps.py") + " < " +
                                  quoted(file) + " 2>/dev/null");
  ASSERT_EQ(peer.exit_code, 0) << peer.output;
  const json maps = json::parse(peer.output);
  ASSERT_EQ(maps.size(), cases.size());
  int64_t placed = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    json expected = maps[i];
    for (const auto& device : maps[i]) {
      if (device == "disk") expected = "nothing";
    }
    EXPECT_EQ(map_of(cases[i]), expected) << cases[i];
    placed += expected.is_array() ? 1 : 0;
  }
  EXPECT_GT(placed, 100) << "most networks have a map to compare";
}

}  // namespace
}  // namespace adtrain

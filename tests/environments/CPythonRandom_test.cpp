#include "environments/CPythonRandom.h"

#include <limits>
#include <numeric>
#include <random>
#include <sstream>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/FreshSeed.h"
#include "support/Process.h"

namespace adtrain {
namespace {

/// What a real Python prints when it runs `body` for each seed: all its numbers.
std::vector<uint64_t> python_numbers(const std::vector<int64_t>& seeds, const std::string& body) {
  const std::string program =
      fmt::format("import random\nfor seed in [{}]:\n  random.seed(seed)\n{}", fmt::join(seeds, ", "), body);
  const Finished finished = run_shell(quoted(ADTRAIN_PYTHON) + " -c " + adtrain::quoted(program));
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  std::istringstream words(finished.output);
  std::vector<uint64_t> numbers;
  for (uint64_t number; words >> number;) numbers.push_back(number);
  return numbers;
}

std::vector<int64_t> fresh_seeds() {
  std::mt19937_64 random(fresh_seed());
  const auto word = [&] { return static_cast<int64_t>(random() >> 1); };
  using Limits = std::numeric_limits<int64_t>;
  return {0,
          1,
          -7,
          int64_t{1} << 32,
          Limits::max(),
          Limits::min(),
          word() & 0xffff,
          word() & 0xffffffff,
          word(),
          -word()};
}

TEST(CPythonRandom, DrawsTheBitsThatPythonDraws) {
  const std::vector<int64_t> seeds = fresh_seeds();
  std::vector<uint64_t> drawn;
  for (const int64_t seed : seeds) {
    CPythonRandom random(seed);
    for (int round = 0; round < 20; ++round) {
      for (int bits = 1; bits <= 64; ++bits) drawn.push_back(random.getrandbits(bits));
    }
  }
  EXPECT_EQ(drawn, python_numbers(seeds,
                                  "  for r in range(20):\n"
                                  "    for k in range(1, 65): print(random.getrandbits(k))"));
}

TEST(CPythonRandom, DrawsBelowAndShufflesAsPythonDoes) {
  const std::vector<int64_t> seeds = fresh_seeds();
  std::vector<uint64_t> drawn;
  for (const int64_t seed : seeds) {
    CPythonRandom random(seed);
    for (uint64_t n = 1; n <= 300; ++n) drawn.push_back(random.below(n));
    std::vector<uint64_t> order(777);
    std::iota(order.begin(), order.end(), 0);
    random.shuffle(order);
    drawn.insert(drawn.end(), order.begin(), order.end());
  }
  EXPECT_EQ(drawn, python_numbers(seeds,
                                  "  for n in range(1, 301): print(random.randrange(n))\n"
                                  "  order = list(range(777)); random.shuffle(order); print(*order)"));
}

}  // namespace
}  // namespace adtrain

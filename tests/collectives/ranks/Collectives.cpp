#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/Random.h"
#include "collectives/Agreement.h"
#include "collectives/ranks/Ranks.h"

namespace adtrain {
namespace {

/// Whole numbers that every rank can work out for every other; sums over few ranks are exact in every type.
at::Tensor numbers_of(int64_t rank, int64_t size) {
  at::Tensor numbers = at::empty({size}, at::kLong);
  RandomStream random(seed_of(7, rank, size));
  auto* values = numbers.data_ptr<int64_t>();
  for (int64_t i = 0; i < size; ++i) values[i] = static_cast<int64_t>(random.below(50));
  return numbers.to(ranks().device);
}

constexpr int64_t kSizes[] = {1, 2, 3, 17, 1000, 4097, 65536, 1000000};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kLong, at::kByte};

class Collectives : public testing::Test {
 protected:
  Communicator& communicator() { return *ranks().communicator; }
  int64_t world() { return communicator().world_size(); }
  int64_t rank() { return communicator().rank(); }

  at::Tensor sum_of_all(int64_t size) {
    at::Tensor sum = at::zeros({size}, at::TensorOptions(ranks().device).dtype(at::kLong));
    for (int64_t r = 0; r < world(); ++r) sum += numbers_of(r, size);
    return sum;
  }
};

TEST_F(Collectives, SumsAreExact) {
  for (const int64_t size : kSizes) {
    const at::Tensor mine = numbers_of(rank(), size), expected = sum_of_all(size);
    for (const at::ScalarType type : kTypes) {
      at::Tensor sum = mine.to(type, /*non_blocking=*/false, /*copy=*/true);
      communicator().all_reduce(sum, ReduceOp::kSum);
      EXPECT_TRUE(at::equal(sum, expected.to(type))) << size << " of " << c10::toString(type);
    }
  }
}

TEST_F(Collectives, SumsOfSixteenMillionAreExact) {
  const at::Tensor common =
      at::arange(16'000'000, at::kInt).bitwise_and_(1023).to(ranks().device, at::kFloat);
  at::Tensor sum = common + static_cast<double>(rank());
  communicator().all_reduce(sum, ReduceOp::kSum);
  const int64_t sum_of_ranks = world() * (world() - 1) / 2;
  EXPECT_TRUE(at::equal(sum, common * static_cast<double>(world()) + static_cast<double>(sum_of_ranks)));
}

TEST_F(Collectives, EveryRankGetsTheSameBits) {
  at::Tensor mine = at::empty({33333});
  RandomStream random(seed_of(8, rank()));
  for (int64_t i = 0; i < mine.numel(); ++i) mine.data_ptr<float>()[i] = static_cast<float>(random.normal());
  mine = mine.to(ranks().device);
  const at::Tensor exact = communicator().all_gather(mine).to(at::kDouble).sum(0);
  communicator().all_reduce(mine, ReduceOp::kSum);

  const at::Tensor all = communicator().all_gather(mine);
  EXPECT_TRUE(at::allclose(mine.to(at::kDouble), exact, 1e-5, 1e-5));
  for (int64_t r = 0; r < world(); ++r) EXPECT_TRUE(at::equal(all[r], mine)) << "rank " << r;
}

TEST_F(Collectives, GreatestAndLeast) {
  for (const int64_t size : {1, 1000, 300000}) {
    at::Tensor greatest = numbers_of(rank(), size).to(at::kFloat);
    at::Tensor least = greatest.clone();
    communicator().all_reduce(greatest, ReduceOp::kMax);
    communicator().all_reduce(least, ReduceOp::kMin);
    at::Tensor expected_greatest = numbers_of(0, size), expected_least = expected_greatest.clone();
    for (int64_t r = 1; r < world(); ++r) {
      expected_greatest = at::maximum(expected_greatest, numbers_of(r, size));
      expected_least = at::minimum(expected_least, numbers_of(r, size));
    }
    EXPECT_TRUE(at::equal(greatest, expected_greatest.to(at::kFloat))) << size;
    EXPECT_TRUE(at::equal(least, expected_least.to(at::kFloat))) << size;
  }
}

TEST_F(Collectives, BroadcastFromEveryRank) {
  for (int64_t root = 0; root < world(); ++root) {
    for (const at::ScalarType type : kTypes) {
      at::Tensor tensor = numbers_of(rank(), 300001).to(type);
      communicator().broadcast(tensor, root);
      EXPECT_TRUE(at::equal(tensor, numbers_of(root, 300001).to(type))) << "from " << root;
    }
  }
}

TEST_F(Collectives, GathersInTheOrderOfRanks) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor gathered =
        communicator().all_gather(numbers_of(rank(), 300000).to(type).view({300, 1000}));
    ASSERT_EQ(gathered.sizes(), at::IntArrayRef({world(), 300, 1000}));
    for (int64_t r = 0; r < world(); ++r) {
      EXPECT_TRUE(at::equal(gathered[r].view(-1), numbers_of(r, 300000).to(type))) << "rank " << r;
    }
  }
}

TEST_F(Collectives, ManySumsMayBeUnderWay) {
  std::vector<at::Tensor> sums;
  std::vector<std::unique_ptr<CollectiveWork>> pending;
  for (int64_t i = 0; i < 20; ++i) sums.push_back(numbers_of(rank(), 1 + i * 20000).to(at::kFloat));
  for (at::Tensor& sum : sums) pending.push_back(communicator().start_all_reduce(sum));
  communicator().progress();
  for (auto one = pending.rbegin(); one != pending.rend(); ++one) (*one)->wait();
  for (const at::Tensor& sum : sums) EXPECT_TRUE(at::equal(sum, sum_of_all(sum.numel()).to(at::kFloat)));
}

TEST_F(Collectives, SumsGoFromOneTensorToAnother) {
  std::vector<Communicator::Summand> summands;
  for (const int64_t size : kSizes) {
    const at::Tensor from = numbers_of(rank(), size).to(at::kFloat);
    // Every third is summed in place, every other one times a half.
    const bool in_place = size % 3 == 2;
    const at::Tensor to = in_place ? from : at::full_like(from, -1);
    summands.push_back({from, to, in_place ? 1.0 : 0.5});
  }
  summands.push_back({at::empty({0}, at::kFloat), at::empty({0}, at::kFloat)});
  communicator().start_sums(summands)->wait();
  communicator().synchronize();
  for (const auto& [from, to, factor] : summands) {
    if (to.numel() == 0) continue;
    const at::Tensor expected = sum_of_all(to.numel()).to(at::kFloat) * factor;
    EXPECT_TRUE(at::equal(to, expected)) << to.numel() << " times " << factor;
    if (factor != 1) {
      EXPECT_TRUE(at::equal(from, numbers_of(rank(), to.numel()).to(at::kFloat))) << "stays";
    }
  }
  EXPECT_THROW(communicator().start_sums({{at::zeros({3}), at::zeros({4})}}), std::invalid_argument);
}

/// Sizes of which every rank has a part, some ranks have none, and the last one has more than others.
constexpr int64_t kDividedSizes[] = {1, 63, 64, 130, 640, 4097, 192 * 1000 + 7, 1'000'000};

TEST_F(Collectives, PartsCoverATensorAndAreAligned) {
  for (const int64_t size : kDividedSizes) {
    int64_t end = 0;
    for (int64_t r = 0; r < world(); ++r) {
      const Part part = part_of(size, r, world());
      EXPECT_EQ(part.begin, end);
      EXPECT_EQ(part.begin % 64, 0);
      if (r + 1 < world()) {
        EXPECT_EQ(part.size, part_of(size, 0, world()).size) << "rank " << r << " of " << size;
      }
      end += part.size;
    }
    EXPECT_EQ(end, size);
    EXPECT_LT(part_of(size, world() - 1, world()).size - part_of(size, 0, world()).size, 64 * world());
  }
}

TEST_F(Collectives, EachRankGetsTheSumsOfItsPart) {
  for (const int64_t size : kDividedSizes) {
    const Part part = part_of(size, rank(), world());
    const at::Tensor expected = sum_of_all(size).narrow(0, part.begin, part.size);
    for (const at::ScalarType type : kTypes) {
      at::Tensor sum = numbers_of(rank(), size).to(type);
      communicator().start_reduce_scatter(sum)->wait();
      EXPECT_TRUE(at::equal(sum.narrow(0, part.begin, part.size), expected.to(type)))
          << size << " of " << c10::toString(type);
    }
  }
}

TEST_F(Collectives, PartsOfAllRanksAreGatheredInPlace) {
  for (const int64_t size : kDividedSizes) {
    for (const at::ScalarType type : kTypes) {
      const at::Tensor expected = numbers_of(world(), size).to(type);
      at::Tensor gathered = at::full_like(expected, 99);
      const Part part = part_of(size, rank(), world());
      gathered.narrow(0, part.begin, part.size).copy_(expected.narrow(0, part.begin, part.size));
      communicator().start_all_gather(gathered)->wait();
      EXPECT_TRUE(at::equal(gathered, expected)) << size << " of " << c10::toString(type);
    }
  }
}

/// As a step of a sharded optimizer has them.
TEST_F(Collectives, SumsAndGathersOfPartsMayBeUnderWayTogether) {
  std::vector<at::Tensor> sums, gathers;
  std::vector<std::unique_ptr<CollectiveWork>> pending;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t size = 1 + i * 30'000;
    sums.push_back(numbers_of(rank(), size).to(at::kFloat));
    gathers.push_back(at::full_like(sums.back(), static_cast<double>(rank())));
    pending.push_back(communicator().start_reduce_scatter(sums.back()));
    pending.push_back(communicator().start_all_gather(gathers.back()));
  }
  communicator().progress();
  for (auto one = pending.rbegin(); one != pending.rend(); ++one) (*one)->wait();
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t size = sums[i].numel();
    const Part mine = part_of(size, rank(), world());
    EXPECT_TRUE(at::equal(sums[i].narrow(0, mine.begin, mine.size),
                          sum_of_all(size).to(at::kFloat).narrow(0, mine.begin, mine.size)));
    for (int64_t r = 0; r < world(); ++r) {
      const Part part = part_of(size, r, world());
      EXPECT_TRUE(gathers[i].narrow(0, part.begin, part.size).eq(r).all().item<bool>()) << "part " << r;
    }
  }
}

TEST_F(Collectives, SixteenBitSumsAreExactOnGpus) {
  if (ranks().device.is_cpu()) GTEST_SKIP() << "16-bit types travel between GPUs alone";
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    at::Tensor sum = numbers_of(rank(), 4097).to(type);
    communicator().all_reduce(sum, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(sum, sum_of_all(4097).to(type))) << c10::toString(type);
    at::Tensor divided = numbers_of(rank(), 4097).to(type);
    communicator().start_reduce_scatter(divided)->wait();
    communicator().start_all_gather(divided)->wait();
    EXPECT_TRUE(at::equal(divided, sum)) << c10::toString(type) << " in parts";
  }
}

TEST_F(Collectives, TensorsOnTheCpuTravelBesideThoseOnTheDevice) {
  at::Tensor here = numbers_of(rank(), 1000).to(at::kFloat), on_cpu = here.cpu();
  const std::unique_ptr<CollectiveWork> pending = communicator().start_all_reduce(here);
  communicator().all_reduce(on_cpu, ReduceOp::kSum);
  pending->wait();
  communicator().synchronize();
  EXPECT_TRUE(at::equal(here.cpu(), on_cpu));
}

TEST_F(Collectives, NothingIsSummedAndGatheredToo) {
  at::Tensor nothing = at::empty({0});
  communicator().all_reduce(nothing, ReduceOp::kSum);
  communicator().start_all_reduce(nothing)->wait();
  communicator().start_reduce_scatter(nothing)->wait();
  communicator().start_all_gather(nothing)->wait();
  EXPECT_EQ(communicator().all_gather(nothing).sizes(), at::IntArrayRef({world(), 0}));
}

TEST_F(Collectives, BarrierWaitsForTheLast) {
  for (int64_t last = 0; last < world(); ++last) {
    at::Tensor ended = at::zeros({1}, at::kDouble);
    if (rank() == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ended += unix_seconds();
    }
    communicator().barrier();
    const double passed = unix_seconds();
    communicator().all_reduce(ended, ReduceOp::kSum);
    EXPECT_GE(passed, ended.item<double>()) << "rank " << rank() << " passed before rank " << last << " came";
  }
}

TEST_F(Collectives, UnfitTensorsAreRefused) {
  at::Tensor transposed = at::zeros({3, 4}).t();
  at::Tensor half = at::zeros({3}, at::kHalf);
  EXPECT_THROW(communicator().all_reduce(transposed, ReduceOp::kSum), std::invalid_argument);
  EXPECT_THROW(communicator().all_gather(half), std::invalid_argument);
  EXPECT_THROW(communicator().start_reduce_scatter(transposed), std::invalid_argument);
  EXPECT_THROW(communicator().start_all_gather(half), std::invalid_argument);
  at::Tensor fit = at::zeros({3});
  EXPECT_THROW(communicator().broadcast(fit, world()), std::invalid_argument);
}

TEST_F(Collectives, TextsOfAllRanksAreGathered) {
  const std::vector<std::string> texts =
      gather_texts(communicator(), std::string(static_cast<size_t>(rank()), 'x'));
  ASSERT_EQ(texts.size(), static_cast<size_t>(world()));
  for (int64_t r = 0; r < world(); ++r)
    EXPECT_EQ(texts[static_cast<size_t>(r)], std::string(static_cast<size_t>(r), 'x'));
}

TEST_F(Collectives, SameValuesPassAndDifferentOnesAreNamed) {
  check_same(communicator(), "configuration hash", "a1b2");
  if (world() == 1) return;
  try {
    check_same(communicator(), "configuration hash", rank() == world() - 1 ? "odd" : "even");
    ADD_FAILURE() << "no error on rank " << rank();
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("configuration hash"));
    EXPECT_THAT(error.what(), testing::HasSubstr("'odd' on rank " + std::to_string(world() - 1)));
    EXPECT_THAT(error.what(), testing::HasSubstr(world() == 2 ? "'even' on rank 0" : "'even' on ranks 0, 1"));
  }
}

TEST_F(Collectives, OfLongValuesTheLinesThatDifferAreNamed) {
  const std::string begin = "lr: 0.1\nseed: ", end = "\nsteps: 20\n";
  check_same(communicator(), "the configuration", begin + "1" + end);
  if (world() == 1) return;
  try {
    check_same(communicator(), "the configuration", begin + (rank() == 1 ? "7" : "1") + end);
    ADD_FAILURE() << "no error on rank " << rank();
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'seed: 7' on rank 1"));
    EXPECT_THAT(error.what(), testing::HasSubstr("'seed: 1' on rank"));
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("steps")));
  }
}

TEST(Group, IsTheOneThatTheLauncherStarted) {
  Communicator& communicator = *ranks().communicator;
  EXPECT_EQ(communicator.rank(), ranks().context.rank);
  EXPECT_EQ(communicator.world_size(), ranks().context.world_size);
  const bool alone = ranks().context.world_size == 1;
  const bool by_mpirun = ranks().context.launcher == Launcher::kMpi;
  const std::string on_cpu = alone ? "none" : by_mpirun ? "MPI" : "Gloo";
  const bool by_nccl = ranks().device.is_cuda() && !alone;
  EXPECT_THAT(communicator.backend(), testing::EndsWith(by_nccl ? on_cpu + " on the CPU" : on_cpu));
}

}  // namespace
}  // namespace adtrain

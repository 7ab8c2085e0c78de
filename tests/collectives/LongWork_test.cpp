#include "collectives/LongWork.h"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// A rank of two whose peer is lost in the third exchange.
class LosesItsPeer final : public Communicator {
 public:
  LosesItsPeer() : Communicator(0, 2, 0) {}
  std::string backend() const override { return "none"; }

 protected:
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor&, ReduceOp) override {
    if (++exchanges_ == 3) throw PeerLostError("a peer was lost");
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor&, int64_t) override { return unexpected(); }
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor&, at::Tensor&) override {
    return unexpected();
  }
  std::unique_ptr<CollectiveWork> begin_barrier() override { return unexpected(); }

 private:
  static std::unique_ptr<CollectiveWork> unexpected() { throw std::logic_error("not an exchange"); }

  int exchanges_ = 0;
};

TEST(LongWork, WhereAPeerIsLostItStopsAndCountsAsWaitingUntilItsWorkHasEnded) {
  LosesItsPeer communicator;
  LongWork work(communicator, {});
  ActivityStatus meanwhile;
  const auto run = [&] {
    work.run(1, [&](std::atomic<int64_t>&) {
      const Deadline deadline(15);
      while (!work.stopping() && !deadline.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      meanwhile = Activity::of_this_process().now();
    });
  };
  EXPECT_THROW(run(), PeerLostError);
  EXPECT_TRUE(work.stopping());
  EXPECT_EQ(meanwhile.waits_in, "an all-reduce");
  EXPECT_FALSE(Activity::of_this_process().waits()) << "it has come back";
}

TEST(LongWork, WhereAPeerIsLostItLeavesOutWhatItHasNotBegun) {
  LosesItsPeer communicator;
  constexpr size_t kResults = 2000;  // of which this rank has half: ten seconds
  std::atomic<size_t> begun = 0;
  const auto compute = [&] {
    LongWork(communicator, {}).compute(kResults, 1, [&](size_t) {
      ++begun;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return std::string();
    });
  };
  EXPECT_THROW(compute(), PeerLostError);
  EXPECT_LT(begun, kResults / 4);
}

}  // namespace
}  // namespace adtrain

#pragma once

#include "distributed/failure/LineSocket.h"
#include "distributed/failure/WatchThread.h"

namespace adtrain {

/// The watch of a rank that is not rank 0: says what it does and hears what rank 0 has decided.
class BranchWatch final : public WatchThread {
 public:
  BranchWatch(RankIdentity me, RankIdentity root, const DistributedOptions& options, Tell tell,
              LineSocket connection);
  ~BranchWatch() override;

 private:
  void round(const std::vector<nlohmann::json>& messages) override;
  void forgive_silence() override { heard_.restart(); }
  std::vector<int> descriptors() const override;

  void hear();

  RankIdentity root_;
  Doing root_doing_;
  LineSocket connection_;
  Stopwatch heard_;
  bool root_left_ = false;
  bool asked_ = false;
};

}  // namespace adtrain

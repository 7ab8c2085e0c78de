#pragma once

#include "watchdog/LineSocket.h"
#include "watchdog/WatchThread.h"

namespace adtrain {

/// The watch of a rank other than rank 0: it reports what its rank does and receives rank 0's decision. Where
/// rank 0 falls silent or is gone, it detects that by itself and sends rank 0 the verdict, in case that
/// process is continued.
class WatchAgent final : public WatchThread {
 public:
  WatchAgent(RankIdentity me, RankIdentity root, const DistributedOptions& options, Tell tell,
             LineSocket connection);
  ~WatchAgent() override;

 private:
  void listen(const std::vector<WatchMessage>& messages) override;
  void judge() override;
  void forgive_silence() override { heard_at_ = now(); }
  std::vector<int> descriptors() const override;

  RankIdentity root_;
  ActivityStatus root_doing_;
  LineSocket connection_;
  double heard_at_ = 0;  ///< by now()
  bool root_left_ = false;
  bool asked_ = false;
};

}  // namespace adtrain

#pragma once

#include <memory>
#include <string>

#include "collectives/Meeting.h"

namespace adtrain {

/// MPI_Init is itself the meeting: it returns when all ranks have called it.
class MpiMeeting final : public Meeting {
 public:
  MpiMeeting(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch);

  std::string word_of_root(const std::string& word) override;
  std::unique_ptr<Communicator> join() override;

 private:
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace adtrain

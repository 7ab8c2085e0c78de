#include "collectives/mpi/MpiMeeting.h"

#include <utility>

#include "collectives/Agreement.h"
#include "collectives/mpi/MpiCommunicator.h"
#include "watchdog/StartWatch.h"

namespace adtrain {

MpiMeeting::MpiMeeting(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch)
    : Meeting(context) {
  watch.waits(
      "for all ranks to start MPI",
      "look for a process that is there and says nothing: its file system may hang. Where ranks start "
      "slowly, raise rendezvous_timeout_seconds.");
  communicator_ = std::make_unique<MpiCommunicator>(context, options);
}

std::string MpiMeeting::word_of_root(const std::string& word) {
  return text_of_root(*communicator_, word);
}

std::unique_ptr<Communicator> MpiMeeting::join() {
  communicator_->barrier();  // all ranks are watched from here on
  return std::move(communicator_);
}

}  // namespace adtrain

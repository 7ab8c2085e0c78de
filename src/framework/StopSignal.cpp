#include "adtrain/stop.h"
#include "collectives/StopRequest.h"
#include "framework/JoinedGroup.h"

namespace adtrain {

class StopSignal::Handler {
 public:
  StopRequest request;
};

StopSignal::StopSignal() : handler_(std::make_unique<Handler>()) {}
StopSignal::~StopSignal() = default;

bool StopSignal::requested(ProcessGroup& group) const {
  return handler_->request.agreed(group.joined().communicator);
}

}  // namespace adtrain

#include "adtrain/batch_size.h"
#include "framework/JoinedGroup.h"
#include "memory/BatchSizeSearch.h"
#include "memory/MemoryMeter.h"

namespace adtrain {

BatchSizeDecision find_batch_size(ProcessGroup& group, const BatchSizeOptions& options,
                                  const std::function<double(int64_t batch)>& trial) {
  Communicator& communicator = group.joined().communicator;
  MemoryMeter meter(communicator.device(), options.cpu_memory_limit, group.launch().local_world_size);
  return BatchSizeSearch(communicator, meter, options).run(trial);
}

}  // namespace adtrain

#pragma once

#include <c10/util/intrusive_ptr.h>

#include "base/Clock.h"
#include "distributed/DistributedOptions.h"
#include "distributed/LaunchContext.h"

namespace c10d {
class Store;
}

namespace adtrain {

/// Meets the other ranks where no MPI connects them: connects to torch's own key-value store at the context's
/// master address and port, which torchrun's agent serves if the environment says so, else rank 0, and waits
/// until every rank has come. The store shows keys of this run and this restart alone.
///
/// Throws EnvironmentError after `rendezvous_timeout_seconds`; it names address and port, who was waited for
/// and what to check. The store's own calls are for one thread, block for the same timeout and throw
/// c10::Error.
c10::intrusive_ptr<c10d::Store> rendezvous(const LaunchContext& context, const DistributedOptions& options);

/// The second half of it: says in the store that this rank is there, and waits for the others. Throws as
/// rendezvous() does, also where the store's server leaves meanwhile.
void await_all_ranks(c10d::Store& store, const LaunchContext& context, const Deadline& deadline);

}  // namespace adtrain

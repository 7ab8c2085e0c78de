#include "distributed/mpi/StartDeadline.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <stop_token>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {

StartDeadline::StartDeadline(const std::string& who, double seconds)
    : watch_([who, seconds](const std::stop_token& started) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any never;
        never.wait_for(lock, started, std::chrono::duration<double>(seconds), [] { return false; });
        if (started.stop_requested()) return;
        const EnvironmentError error(fmt::format(
            "MPI has waited {} for all ranks to start; look for a process that is there and says nothing: "
            "its file system may hang. Where ranks start slowly, raise rendezvous_timeout_seconds.",
            human_duration(seconds)));
        const ExitCode code = report_failure(error, who);
        std::_Exit(static_cast<int>(code));
      }) {}

}  // namespace adtrain

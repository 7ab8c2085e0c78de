#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/Clock.h"
#include "distributed/DistributedOptions.h"
#include "distributed/Meeting.h"
#include "distributed/MeetingPort.h"

namespace adtrain {

/// The ranks' meeting where no MPI connects them: torch's own key-value store at the context's master address
/// and port, which torchrun's agent serves if the environment says so, else rank 0. What a rank writes there
/// belongs to this run and this restart alone.
///
/// Each rank leaves there who it is, so that it is found out who has come, who has come twice, and who was
/// told another number of ranks.
class Rendezvous : public Meeting {
 public:
  /// Connects. Throws EnvironmentError after `rendezvous_timeout_seconds`, whatever it is that listens there:
  /// it names address and port, what answers there, and what to check.
  Rendezvous(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch);

  std::string word_of_root(const std::string& word) override;
  std::unique_ptr<Communicator> join() override;

  /// Waits until every rank has come.
  void await_all();
  /// Its calls are for one thread, block for the same timeout and throw c10::Error.
  c10d::Store& store() const { return *store_; }

 protected:
  /// With a store of its own, for tests.
  Rendezvous(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch,
             c10::intrusive_ptr<c10d::Store> store);

 private:
  void arrive();
  void check_world_size(const std::string& of_root) const;
  /// Also wakes the others up.
  [[noreturn]] void refuse(int64_t rank, const std::string& why) const;
  [[noreturn]] void throw_refusal(int64_t rank, const std::string& why) const;
  void throw_if_refused() const;
  [[noreturn]] void throw_missing(const std::vector<int64_t>& ranks) const;
  std::vector<int64_t> missing() const;
  [[noreturn]] void throw_given_up(const std::string& why) const;

  DistributedOptions options_;
  StartWatch& watch_;
  Deadline deadline_;
  std::optional<MeetingPort> port_;  ///< of rank 0, where it serves the store
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace adtrain

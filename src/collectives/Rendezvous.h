#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/Clock.h"
#include "collectives/Meeting.h"
#include "launch/DistributedOptions.h"
#include "launch/MeetingPort.h"

namespace adtrain {

/// The ranks' meeting without MPI: torch's key-value store at the context's master address and port.
/// torchrun's agent serves it if the environment says so, else rank 0. A rank's keys belong to this run and
/// this restart alone.
///
/// Each rank publishes its identity there. So it is known which ranks have arrived, which have arrived twice,
/// and which have another world size.
class Rendezvous : public Meeting {
 public:
  /// Connects. Throws EnvironmentError after `rendezvous_timeout_seconds`, whatever listens there. The error
  /// names address and port, what answers there, and what to check.
  Rendezvous(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch);

  std::string word_of_root(const std::string& word) override;
  std::unique_ptr<Communicator> join() override;

  /// Waits until every rank has arrived.
  void await_all();
  /// The store's calls are for one thread, block for at most the same timeout and throw c10::Error.
  c10d::Store& store() const { return *store_; }

 protected:
  /// With a store of its own, for tests.
  Rendezvous(const LaunchContext& context, const DistributedOptions& options, StartWatch& watch,
             c10::intrusive_ptr<c10d::Store> store);

 private:
  void arrive();
  void check_world_size(const std::string& of_root) const;
  /// Throws, and also wakes the other ranks.
  [[noreturn]] void refuse(int64_t rank, const std::string& why) const;
  [[noreturn]] void throw_refusal(int64_t rank, const std::string& why) const;
  void throw_if_refused() const;
  [[noreturn]] void throw_missing(const std::vector<int64_t>& ranks) const;
  std::vector<int64_t> missing() const;
  [[noreturn]] void throw_given_up(const std::string& why) const;

  DistributedOptions options_;
  StartWatch& watch_;
  Deadline deadline_;
  std::optional<MeetingPort> port_;  ///< on rank 0, where it serves the store
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace adtrain

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
/// this attempt alone.
///
/// torchrun's store outlives an attempt, with its keys. Which attempt this is no rank can read from its
/// environment: each agent counts the restarts that its own ranks have caused. So rank 0 draws a name for the
/// attempt, and tells it to every rank that asks. A question has an answer of its own, which a rank 0 of an
/// earlier attempt cannot have given.
///
/// Each rank publishes its identity there. So it is known which ranks have arrived, which have arrived twice,
/// and which have another world size.
class Rendezvous : public Meeting {
 public:
  /// Connects. Where torchrun's agent serves the store, ranks other than 0 then wait until rank 0 is in
  /// await_all(). Throws EnvironmentError after `rendezvous_timeout_seconds`, whatever listens there. The
  /// error names address and port, what answers there, and what to check.
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
  /// The name of this attempt, which rank 0 gives it.
  std::string agree_on_attempt();
  /// Names this attempt; each rank's keys are under that name from here on.
  void begin_attempt(const std::string& name);
  /// On rank 0: tells all who have asked which attempt this is. Throws where another process is rank 0, too.
  void answer_questions();
  void arrive();
  void check_world_size(const std::string& of_root) const;
  /// Wakes the other ranks of this attempt, which then throw.
  void tell_refused(int64_t rank, const std::string& why) const;
  /// Throws, and also wakes the other ranks.
  [[noreturn]] void refuse(int64_t rank, const std::string& why) const;
  [[noreturn]] void throw_refusal(int64_t rank, const std::string& why) const;
  void throw_if_refused() const;
  [[noreturn]] void throw_missing(const std::vector<int64_t>& ranks) const;
  /// The failure of ranks that may look in vain for the name under which this one waits. It blames nobody.
  Failure unknown_name(const std::vector<int64_t>& ranks) const;
  std::vector<int64_t> missing() const;
  [[noreturn]] void throw_given_up(const std::string& why) const;

  DistributedOptions options_;
  StartWatch& watch_;
  Deadline deadline_;
  std::optional<MeetingPort> port_;  ///< on rank 0, where it serves the store
  std::string unknown_;              ///< likewise: why MASTER_ADDR has no address here; "" where it has one
  /// Of all attempts of this run; null where each has a store of its own.
  c10::intrusive_ptr<c10d::Store> of_all_attempts_;
  std::string attempt_;  ///< the name of this one, where the store is of several
  size_t answered_ = 0;  ///< bytes of the questions that rank 0 has answered
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace adtrain

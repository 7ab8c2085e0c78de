#include "distributed/Rendezvous.h"

#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/Clock.h"
#include "base/Error.h"
#include "base/Text.h"
#include "distributed/C10dTerms.h"
#include "distributed/MasterAddress.h"

namespace adtrain {
namespace {

std::string place(const LaunchContext& context) {
  return fmt::format("{}:{} (MASTER_ADDR and MASTER_PORT)", context.master_address, context.master_port);
}

[[noreturn]] void throw_unreachable(const LaunchContext& context, double timeout, const std::string& why) {
  const std::string server = context.agent_store ? "torchrun's agent" : "rank 0";
  throw EnvironmentError(fmt::format(
      "Rank {} of {} did not reach {} at {} within {} ({}); check that {} has started and runs on that host, "
      "that every rank was given the same address and port, and that no firewall lies between.",
      context.rank, context.world_size, server, place(context), human_duration(timeout), why, server));
}

[[noreturn]] void throw_port_in_use(const LaunchContext& context) {
  throw EnvironmentError(fmt::format(
      "Rank 0 cannot serve the meeting point at {}: the port is in use on this host, by another run perhaps; "
      "set MASTER_PORT to a free port, the same on every rank.",
      place(context)));
}

c10::intrusive_ptr<c10d::Store> open_store(const std::string& host, bool serves, const LaunchContext& context,
                                           double timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(context.master_port);
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = to_milliseconds(timeout);
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// The server listens on all addresses of its host, and is its own client by the one that always works.
c10::intrusive_ptr<c10d::Store> serve(const LaunchContext& context, double timeout) {
  try {
    return open_store("127.0.0.1", true, context, timeout);
  } catch (const c10::Error& error) {
    const std::string why = reason_of(error);
    if (why.find("EADDRINUSE") != std::string::npos) throw_port_in_use(context);
    throw EnvironmentError(
        fmt::format("Rank 0 cannot serve the meeting point at {} ({}).", place(context), why));
  }
}

c10::intrusive_ptr<c10d::Store> connect(const LaunchContext& context, double timeout) {
  const std::string trouble = wait_for_listener(context.master_address, context.master_port, timeout);
  if (!trouble.empty()) throw_unreachable(context, timeout, trouble);
  try {
    return open_store(context.master_address, false, context, timeout);
  } catch (const c10::Error& error) {
    throw_unreachable(context, timeout, reason_of(error));
  }
}

[[noreturn]] void throw_given_up(const LaunchContext& context, const std::string& why) {
  throw EnvironmentError(
      fmt::format("Rank {} of {} had reached the meeting point at {}, which has closed since ({}): rank 0 "
                  "has ended or given up waiting for the others; its last lines say for which.",
                  context.rank, context.world_size, place(context), why));
}

std::vector<std::string> arrival_keys(int64_t world_size) {
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < world_size; ++rank) keys.push_back(fmt::format("arrived/{}", rank));
  return keys;
}

/// The ranks that have not come by the deadline.
std::vector<std::string> wait_for(const std::vector<std::string>& keys, c10d::Store& store,
                                  const Deadline& deadline) {
  std::vector<std::string> missing;
  try {
    store.wait(keys, to_milliseconds(deadline.seconds_left()));
  } catch (const c10::DistStoreError&) {
    for (size_t rank = 0; rank < keys.size(); ++rank) {
      if (!store.check({keys[rank]})) missing.push_back(std::to_string(rank));
    }
  }
  return missing;
}

[[noreturn]] void throw_missing(const LaunchContext& context, const std::vector<std::string>& missing,
                                double timeout) {
  throw EnvironmentError(fmt::format(
      "Rank {} of {} waited {} at {} for rank{} {}; check that all {} ranks were started with the same world "
      "size, address and port, and look for an error in the output of those that did not come.",
      context.rank, context.world_size, human_duration(timeout), place(context),
      missing.size() > 1 ? "s" : "", join(missing, ", "), context.world_size));
}

}  // namespace

void await_all_ranks(c10d::Store& store, const LaunchContext& context, const Deadline& deadline) {
  const std::vector<std::string> keys = arrival_keys(context.world_size);
  try {
    store.set(keys[static_cast<size_t>(context.rank)], std::vector<uint8_t>{1});
    const std::vector<std::string> missing = wait_for(keys, store, deadline);
    if (!missing.empty()) throw_missing(context, missing, deadline.limit_seconds());
  } catch (const c10::Error& error) {
    throw_given_up(context, reason_of(error));
  }
}

c10::intrusive_ptr<c10d::Store> rendezvous(const LaunchContext& context, const DistributedOptions& options) {
  const Deadline deadline(options.rendezvous_timeout_seconds);
  const double timeout = deadline.limit_seconds();
  const bool serves = context.is_root() && !context.agent_store;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("adtrain/{}/{}", context.run_id, context.restart_count),
      serves ? serve(context, timeout) : connect(context, timeout));
  await_all_ranks(*store, context, deadline);
  return store;
}

}  // namespace adtrain

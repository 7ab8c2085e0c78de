#include "watchdog/FailureWatch.h"

#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "launch/MeetingPort.h"
#include "watchdog/WatchAddress.h"
#include "watchdog/WatchAgent.h"
#include "watchdog/WatchCoordinator.h"
#include "watchdog/WatchMessage.h"

namespace adtrain {
namespace {

constexpr double kSecondsToConnect = 2;  // to each of rank 0's addresses, some of which may be unreachable
// Rank 0 may be on a busy host, and a rank that closes its connection counts as lost.
constexpr double kSecondsToAnswer = 30;
constexpr int kAttempts = 3;  // as unknown connections may crowd rank 0's port

/// Connects to the first of the addresses at which rank 0 answers.
std::optional<LineSocket> accept_invitation(const Invitation& invitation, const RankIdentity& me) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    for (const std::string& address : invitation.addresses) {
      auto connection = LineSocket::connect(address, invitation.port, kSecondsToConnect);
      if (!connection) continue;
      connection->send(line_of(Hello{invitation.secret, me, Activity::of_this_process().now()}));
      const auto answer = connection->wait_for_line(kSecondsToAnswer);
      const auto message = answer ? read_watch_message(*answer) : std::nullopt;
      if (message && std::holds_alternative<Welcome>(*message)) return connection;
    }
  }
  return std::nullopt;
}

/// The address of this host at which the ranks meet; "" where they meet elsewhere, or by MPI.
std::string met_at(const LaunchContext& context) {
  return context.master_address.empty() ? "" : MeetingAddress::of(context).listen;
}

}  // namespace

std::unique_ptr<FailureWatch> FailureWatch::start(const LaunchContext& context,
                                                  const WordOfRoot& word_of_root,
                                                  const DistributedOptions& options, Tell tell) {
  const auto me = RankIdentity::of_this_process(context.rank, context.world_size);
  if (me.rank == 0) {
    const WatchAddress address = WatchAddress::choose(context.on_one_host(), met_at(context));
    const std::string secret = random_secret();
    auto watch = std::make_unique<WatchCoordinator>(me, options, std::move(tell), secret, address.listen);
    word_of_root(line_of(Invitation{me, watch->port(), secret, address.reach}));
    return watch;
  }
  const auto message = read_watch_message(word_of_root(""));
  if (!message || !std::holds_alternative<Invitation>(*message)) {
    throw EnvironmentError(
        "What rank 0 has told the others of its watch is not understood; start every rank with the same "
        "adtrain.");
  }
  const Invitation invitation = std::get<Invitation>(*message);
  auto connection = accept_invitation(invitation, me);
  if (!connection) {
    print_error(
        fmt::format("adtrain: rank {} of {} cannot reach rank 0 at port {} of {}; should a rank fail, this "
                    "one will not know which\n",
                    me.rank, me.world_size, invitation.port, join(invitation.addresses, ", ")));
    return nullptr;
  }
  return std::make_unique<WatchAgent>(me, invitation.who, options, std::move(tell), std::move(*connection));
}

}  // namespace adtrain

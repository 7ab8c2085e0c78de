#include "distributed/failure/FailureWatch.h"

#include <random>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "distributed/Agreement.h"
#include "distributed/NetworkInterfaces.h"
#include "distributed/failure/BranchWatch.h"
#include "distributed/failure/RootWatch.h"

namespace adtrain {
namespace {

constexpr double kSecondsToConnect = 2;  // to each of its addresses, of which some may lead nowhere
constexpr double kSecondsToAnswer = 30;  // rank 0 on a busy host: who hangs up is taken for lost

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

std::vector<std::string> addresses_here() {
  std::vector<std::string> addresses;
  for (const NetworkInterface& interface : network_interfaces()) addresses.push_back(interface.address);
  return addresses;
}

/// How rank 0 tells the others where it listens.
nlohmann::json invitation(const RootWatch& watch, const RankIdentity& who, const std::string& token) {
  return {{"who", who}, {"port", watch.port()}, {"token", token}, {"addresses", addresses_here()}};
}

/// By loopback on the same host, else by the first of its addresses at which it is rank 0 who answers.
std::optional<LineSocket> accept_invitation(const nlohmann::json& invitation, const RankIdentity& me) {
  std::vector<std::string> addresses = invitation.at("addresses");
  const auto root = invitation.at("who").get<RankIdentity>();
  if (root.host == me.host) addresses.insert(addresses.begin(), "127.0.0.1");
  for (const std::string& address : addresses) {
    auto connection = LineSocket::connect(address, invitation.at("port"), kSecondsToConnect);
    if (!connection) continue;
    nlohmann::json hello = message_of("hello");
    hello["token"] = invitation.at("token");
    hello["who"] = me;
    hello["doing"] = Activity::of_this_process().now();
    connection->send(line_of(hello));
    if (connection->wait_for_line(kSecondsToAnswer)) return connection;
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<FailureWatch> FailureWatch::start(Communicator& communicator,
                                                  const DistributedOptions& options, Tell tell) {
  const auto me = RankIdentity::of_this_process(communicator.rank(), communicator.world_size());
  if (communicator.is_root()) {
    const std::string token = random_token();
    auto watch = std::make_unique<RootWatch>(me, options, std::move(tell), token);
    gather_texts(communicator, line_of(invitation(*watch, me, token)));
    return watch;
  }
  const auto invited = nlohmann::json::parse(gather_texts(communicator, "").front());
  auto connection = accept_invitation(invited, me);
  if (!connection) {
    fmt::print(
        stderr,
        "adtrain: rank {} of {} cannot reach rank 0 at port {} of {}; should a rank fail, this one will "
        "not know which\n",
        me.rank, me.world_size, invited.at("port").get<int64_t>(), invited.at("addresses").dump());
    return nullptr;
  }
  return std::make_unique<BranchWatch>(me, invited.at("who").get<RankIdentity>(), options, std::move(tell),
                                       std::move(*connection));
}

}  // namespace adtrain

#include "watchdog/WatchAddress.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "launch/NetworkInterfaces.h"
#include "watchdog/LineSocket.h"

namespace adtrain {
namespace {

using testing::Contains;
using testing::ElementsAre;

/// Whether this system has IPv6 at all: containers often have none.
bool has_ipv6() {
  try {
    const LineListener listener("::1");
    return true;
  } catch (const EnvironmentError&) {
    return false;
  }
}

/// What arrives at the listener of a line that is sent to `address`.
std::optional<std::string> sent_to(LineListener& listener, const std::string& address) {
  auto sender = LineSocket::connect(address, listener.port(), 5);
  if (!sender) return std::nullopt;
  sender->send("a line");
  wait_until_readable({listener.descriptor()}, 5);
  auto receiver = listener.accept();
  return receiver ? receiver->wait_for_line(5) : std::nullopt;
}

TEST(WatchAddress, IsTheOneAtWhichTheRanksHaveMet) {
  for (const std::string met_at : {"10.0.0.7", "fd00::7", "fe80::7%eth0"}) {
    const WatchAddress address = WatchAddress::choose(/*shared_loopback=*/false, met_at);
    EXPECT_EQ(address.listen, met_at);
    EXPECT_THAT(address.reach, ElementsAre(met_at));
  }
  EXPECT_EQ(WatchAddress::choose(/*shared_loopback=*/true, "fd00::7").listen, "127.0.0.1");
}

TEST(WatchAddress, AllAddressesOfAHostAreNoneThatOthersCanReach) {
  for (const std::string met_at : {"", "0.0.0.0", "::"}) {
    std::vector<std::string> known;
    for (const NetworkInterface& interface : network_interfaces()) known.push_back(interface.address);
    for (const std::string& address : WatchAddress::choose(/*shared_loopback=*/false, met_at).reach)
      EXPECT_THAT(known, Contains(address));
  }
}

TEST(WatchAddress, ASubnetIsOfEitherFamily) {
  for (const NetworkInterface& interface : network_interfaces()) {
    const bool six = interface.address.find(':') != std::string::npos;
    setenv("GLOO_SOCKET_IFNAME", (interface.address + (six ? "/128" : "/32")).c_str(), 1);
    const WatchAddress address = WatchAddress::choose(/*shared_loopback=*/false, "");
    EXPECT_EQ(address.listen, interface.address);
    EXPECT_THAT(address.reach, ElementsAre(interface.address));
  }
  unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(WatchAddress, TheWatchListensAndIsReachedByIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 on this system";
  LineListener one("::1");
  EXPECT_EQ(sent_to(one, "::1"), "a line");
  EXPECT_EQ(sent_to(one, "127.0.0.1"), std::nullopt) << "it listens at that address alone";
  LineListener all("::");
  EXPECT_EQ(sent_to(all, "::1"), "a line");
  EXPECT_EQ(sent_to(all, "127.0.0.1"), "a line");
}

TEST(WatchAddress, WhatIsNoAddressIsNotConnectedTo) {
  LineListener listener;
  EXPECT_EQ(sent_to(listener, "127.0.0.1"), "a line");
  for (const std::string text : {"", "localhost", "10.0.0"})
    EXPECT_EQ(sent_to(listener, text), std::nullopt) << text;
  EXPECT_THROW(LineListener("localhost"), EnvironmentError);
}

}  // namespace
}  // namespace adtrain

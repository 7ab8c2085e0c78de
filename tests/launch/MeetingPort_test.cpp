#include "launch/MeetingPort.h"

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "launch/MasterAddress.h"
#include "launch/NetworkInterfaces.h"
#include "support/ListeningPort.h"
#include "support/RankOfTwo.h"

namespace adtrain {
namespace {

/// Names of several addresses, which /etc/hosts might hold.
std::map<std::string, std::vector<std::string>>& hosts_file() {
  static std::map<std::string, std::vector<std::string>> hosts;
  return hosts;
}

}  // namespace
}  // namespace adtrain

/// The resolver of this program: it knows the names of hosts_file() and leaves all others to the system's.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** result) {
  static const auto of_system = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const auto host = adtrain::hosts_file().find(name == nullptr ? "" : name);
  if (host == adtrain::hosts_file().end()) return of_system(name, service, hints, result);
  for (const std::string& address : host->second) {
    if (const int error = of_system(address.c_str(), service, hints, result); error != 0) return error;
    result = &(*result)->ai_next;
  }
  return 0;
}

namespace adtrain {
namespace {

LaunchContext on_two_hosts(const std::string& master, int64_t port) {
  LaunchContext context = rank_of_two(0, port);
  context.local_world_size = 1;
  context.master_address = master;
  return context;
}

std::string bound_to(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return numeric_address(reinterpret_cast<sockaddr*>(&address), length);
}

TEST(MeetingPort, RanksOfOneHostMeetAtLoopbackByWhateverNameItIsGiven) {
  for (const NetworkInterface& interface : network_interfaces()) {
    LaunchContext context = rank_of_two(0, free_port());
    context.master_address = interface.address;
    const MeetingAddress address = MeetingAddress::of(context);
    EXPECT_EQ(address.connect, "127.0.0.1") << interface.address;
    EXPECT_EQ(bound_to(MeetingPort(context, address).hand_over()), "127.0.0.1") << interface.address;
  }
}

TEST(MeetingPort, RanksOfSeveralHostsMeetAtTheOneAddressThatIsNamed) {
  for (const NetworkInterface& interface : network_interfaces()) {
    const LaunchContext context = on_two_hosts(interface.address, free_port());
    const MeetingAddress address = MeetingAddress::of(context);
    EXPECT_EQ(address.connect, interface.address);
    EXPECT_EQ(bound_to(MeetingPort(context, address).hand_over()), interface.address);
  }
}

TEST(MeetingPort, ANameThatMeansLoopbackOnItsOwnHostMeansEveryAddressToOthers) {
  const LaunchContext context = on_two_hosts("127.0.1.1", free_port());
  const MeetingAddress address = MeetingAddress::of(context);
  EXPECT_EQ(address.listen, "");
  MeetingPort port(context, address);
  EXPECT_EQ(port_of(port.hand_over()), context.master_port);
}

TEST(MeetingPort, ANameOfSeveralAddressesMeansEveryAddressOfItsHost) {
  // The first may be of a network that leads nowhere, and the others come by another one.
  for (const NetworkInterface& interface : network_interfaces()) {
    hosts_file()["h1"] = {interface.address, "127.0.0.1"};
    LaunchContext context = on_two_hosts("h1", free_port());
    const MeetingAddress address = MeetingAddress::of(context);
    EXPECT_EQ(address.listen, "") << interface.address;
    EXPECT_EQ(address.connect, "127.0.0.1");
    EXPECT_NE(bound_to(MeetingPort(context, address).hand_over()), interface.address);
    context.rank = 1;
    EXPECT_EQ(MeetingAddress::of(context).connect, "h1");
    hosts_file()["h1"] = {interface.address, interface.address};  // two lines of /etc/hosts
    EXPECT_EQ(MeetingAddress::of(context).listen, interface.address);
  }
}

TEST(MeetingPort, RanksOfOneHostMeetAtLoopbackWhicheverAddressOfTheNameIsTheHosts) {
  hosts_file()["h1"] = {"203.0.113.1", "127.0.1.1"};  // the first is nobody's
  LaunchContext context = rank_of_two(1, free_port());
  context.master_address = "h1";
  EXPECT_EQ(MeetingAddress::of(context).listen, "127.0.0.1");
  EXPECT_EQ(MeetingAddress::of(context).connect, "127.0.0.1");
}

/// Listens at a loopback address.
class LoopbackListener {
 public:
  explicit LoopbackListener(const std::string& address, int64_t port, int queue)
      : name_(address, port), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const addrinfo& local = *name_.first();
    if (bind(socket_, local.ai_addr, local.ai_addrlen) != 0 || listen(socket_, queue) != 0)
      throw EnvironmentError("cannot listen at " + address);
  }
  ~LoopbackListener() {
    close(socket_);
    for (const int connection : connections_) close(connection);
  }
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;

  /// As many connections as its queue takes: Linux drops the packets of all others from then on.
  void fill() {
    for (int i = 0; i < 4; ++i) {
      connections_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      connect(connections_.back(), name_.first()->ai_addr, name_.first()->ai_addrlen);
    }
  }

 private:
  MasterAddress name_;
  int socket_;
  std::vector<int> connections_;
};

TEST(MeetingPort, TheAddressOfANameThatAnswersIsFound) {
  const int64_t port = free_port();
  hosts_file()["h1"] = {"127.0.0.2", "127.0.0.3", "127.0.0.2"};
  const FoundListener nobody = find_listener("h1", port, 0.2);
  EXPECT_EQ(nobody.address, "");
  EXPECT_EQ(nobody.trouble, "127.0.0.2: Connection refused; 127.0.0.3: Connection refused");
  const LoopbackListener listener("127.0.0.3", port, 4);
  const FoundListener found = find_listener("h1", port, 5);
  EXPECT_EQ(found.address, "127.0.0.3");
  EXPECT_EQ(found.trouble, "");
  EXPECT_EQ(find_listener("h1", port, 5).trouble, "");
}

TEST(MeetingPort, AnAddressThatLosesAllPacketsLeavesTimeForTheOthers) {
  const int64_t port = free_port();
  LoopbackListener deaf("127.0.0.2", port, 0);
  deaf.fill();
  ASSERT_EQ(find_listener("127.0.0.2", port, 0.2).trouble, "Connection timed out");
  const LoopbackListener listener("127.0.0.3", port, 4);
  hosts_file()["h1"] = {"127.0.0.2", "127.0.0.3"};
  const Stopwatch watch;
  EXPECT_EQ(find_listener("h1", port, 2).address, "127.0.0.3") << "half of the time is its own";
  EXPECT_EQ(find_listener("h1", port, 3600).address, "127.0.0.3");
  EXPECT_LT(watch.seconds(), 10);
}

TEST(MeetingPort, TakesOverTheSocketThatTheLauncherHasBound) {
  const int bound = bind_loopback(0);
  ASSERT_GE(bound, 0);
  const LaunchContext context = rank_of_two(0, port_of(bound));
  setenv(kMeetingSocketVariable, std::to_string(bound).c_str(), 1);
  EXPECT_EQ(MeetingPort(context, MeetingAddress::of(context)).hand_over(), bound);
  // A descriptor that is something else by now is not taken.
  EXPECT_NE(MeetingPort(rank_of_two(0, free_port()), MeetingAddress::of(context)).hand_over(), bound);
  unsetenv(kMeetingSocketVariable);
  close(bound);
}

TEST(MeetingPort, RefusesMoreWhileWhatIsConnectedStays) {
  const LaunchContext context = rank_of_two(0, free_port());
  MeetingPort port(context, MeetingAddress::of(context));
  const int listening = port.hand_over();
  ASSERT_EQ(listen(listening, 4), 0);
  EXPECT_EQ(find_listener("127.0.0.1", context.master_port, 1).trouble, "");
  port.refuse_more();
  EXPECT_EQ(find_listener("127.0.0.1", context.master_port, 0.1).trouble, "Connection refused");
  close(listening);
}

}  // namespace
}  // namespace adtrain

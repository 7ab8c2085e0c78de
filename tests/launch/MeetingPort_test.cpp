#include "launch/MeetingPort.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/Error.h"
#include "launch/MasterAddress.h"
#include "launch/NetworkInterfaces.h"
#include "support/ListeningPort.h"
#include "support/RankOfTwo.h"

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
  EXPECT_EQ(wait_for_listener("127.0.0.1", context.master_port, 1), "");
  port.refuse_more();
  EXPECT_EQ(wait_for_listener("127.0.0.1", context.master_port, 0.1), "Connection refused");
  close(listening);
}

}  // namespace
}  // namespace adtrain

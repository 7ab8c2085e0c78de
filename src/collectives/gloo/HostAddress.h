#pragma once

#include <string>

#include "launch/LaunchContext.h"

namespace adtrain {

/// The numeric address at which the other ranks reach this host: loopback where all ranks are on one host or
/// the master's address is loopback, else the address of the interface through which packets to the master
/// leave. On the master's own host that may be loopback too; then it is the address of the only network
/// interface. Throws EnvironmentError, which names GLOO_SOCKET_IFNAME, where there is no such interface or
/// more than one.
std::string host_address(const LaunchContext& context);

}  // namespace adtrain

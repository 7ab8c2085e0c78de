#pragma once

#include <string>

#include "distributed/LaunchContext.h"

namespace adtrain {

/// The numeric address of this host at which the other ranks reach it: loopback where all ranks are on one
/// host or the master's address is a loopback, else the address of the interface that packets to the master
/// leave by. On the master's own host that may be loopback too; then it is the address of the only network
/// interface. Throws EnvironmentError, which names GLOO_SOCKET_IFNAME, where none or several come into
/// question.
std::string host_address(const LaunchContext& context);

}  // namespace adtrain

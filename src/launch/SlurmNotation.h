#pragma once

#include <cstdint>
#include <string>

/// The shorthands in which SLURM lists hosts and counts.
namespace adtrain {

/// The first host of a node list, zero padding kept: "n[05-09,12],m1" gives "n05".
std::string first_host(const std::string& node_list);

/// The tasks on node `node` of a list such as "4(x2),1", which means 4, 4, 1; 0 where the list is shorter.
int64_t tasks_on_node(const std::string& tasks_per_node, int64_t node);

}  // namespace adtrain

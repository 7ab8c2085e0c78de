#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// What a throughput table measures on.
struct ThroughputMachine {
  std::vector<std::string> gpus = {};  ///< as CUDA_VISIBLE_DEVICES names them; none: the CPU
  int64_t cores = 1;
  int64_t memory = 0;  ///< of the host, available
};

/// What is asked of the table.
struct ThroughputPlan {
  int64_t batch = 16;     ///< windows of the row of fixed batches
  int64_t processes = 0;  ///< ranks, processes and devices of a map; 0: one for each GPU, two on the CPU
  std::vector<std::string> rows = {};  ///< keys; empty for all, of others' programs where `peers` says so
  bool sets_threads = false;           ///< the settings of all rows say cpu_threads
  bool sets_map = false;               ///< … device_map
  /// GPUs, on the CPU logical devices, to which max_memory of all rows gives something; nothing where it is
  /// not set.
  std::optional<int64_t> limited_devices = {};
  std::string precision = "fp32";  ///< of rows of others' programs
  bool peers = false;              ///< whether all rows are others' programs' too
  std::string quantised = {};      ///< how the weights of all rows are, "nf4"; empty: as they are
};

/// One way of scoring, to be measured by itself.
struct ThroughputRow {
  std::string key;                         ///< "sequential"
  std::string name;                        ///< for people: "one at a time"
  std::vector<std::string> settings = {};  ///< key=value, after those of all rows
  int64_t ranks = 1;                       ///< of one scoring, under adtrain launch
  int64_t processes = 1;                   ///< that know nothing of each other, with a shard each
  std::vector<std::string> gpus = {};      ///< that it may use, all together
  std::vector<std::string> peer = {};      ///< not adtrain's: what PeerProgram is told of this row
  std::string not_here = {};               ///< why it cannot be measured on this machine; empty where it can

  static bool is_peer(const ThroughputRow& row) { return !row.peer.empty(); }
  /// The GPUs of one of its processes, as CUDA_VISIBLE_DEVICES takes them.
  std::string gpus_of(int64_t process) const;
};

/// Every key, in the order of rows.
const std::vector<std::string>& throughput_row_keys();

/// The rows of a table: a pure function. Throws ConfigError for a key that is none, and where there are fewer
/// GPUs than processes.
std::vector<ThroughputRow> throughput_rows(const ThroughputPlan& plan, const ThroughputMachine& machine);

}  // namespace adtrain

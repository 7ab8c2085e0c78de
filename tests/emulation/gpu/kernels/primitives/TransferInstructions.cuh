#pragma once

#include "emulation/Transfers.h"
#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"

/// Stands in the place of src/kernels/primitives/TransferInstructions.cuh: the same instructions in the
/// emulator, but for those of kernels that are not emulated. What each one does is said there.
namespace adtrain::kernels {

inline char* aligned_shared_memory() {
  return emulation::shared_memory();
}

using TransferBarrier = emulation::TransferBarrier;

inline void show_barriers_to_copies() {}
inline void start_copy(void* to, const TensorMap& map, int row, int byte, TransferBarrier& barrier) {
  emulation::start_box_copy(to, map, {row, byte}, barrier);
}
inline void start_head_copy(void* to, const TensorMap& map, int row, int head, int sequence,
                            TransferBarrier& barrier) {
  emulation::start_box_copy(to, map, {row, 0, head, sequence}, barrier);
}

template <int Registers>
void take_registers() {}
template <int Registers>
void give_up_registers() {}

inline void meet_in_cluster() {
  emulation::cluster_barrier();
}
/// Whoever arrives is counted when it waits.
inline void arrive_in_cluster() {}
inline void await_cluster() {
  emulation::cluster_barrier();
}
inline void start_store(float4* place, const Sums& sums, TransferBarrier& barrier, int block) {
  emulation::start_store(place, sums.value, barrier, block);
}

}  // namespace adtrain::kernels

#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"

/// Instructions of Hopper for warps with different work ("mbarrier", "cp.async.bulk.tensor", clusters and
/// "setmaxnreg" of the PTX ISA), of GPUs of compute capability 9.0. Like Instructions.cuh, this header has a
/// counterpart in tests/emulation/.
namespace adtrain::kernels {

/// dynamic_shared_memory() of a kernel without other shared memory, aligned to 1024 bytes. The compiler knows
/// this address, which tiles could otherwise only be moved to at run time.
__device__ inline char* aligned_shared_memory() {
  extern __shared__ __align__(1024) char aligned_memory[];
  return aligned_memory;
}

/// A barrier in shared memory that has phases: a phase ends when as many threads as it was set up for have
/// arrived and all bytes that were expected in it have been copied, and then the next one begins. Whoever
/// waits need not arrive. Stores before an arrival are visible to those who have waited for the phase.
class TransferBarrier {
 public:
  /// By one thread, before a barrier of the block. `arrivals`: in each phase.
  __device__ void set_up(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address())
                 : "memory");
  }
  /// The present phase waits for so many more bytes of copies, too. By a thread that has yet to arrive.
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  /// Until phase number `phase`, counted from 0, has ended. Nobody may be two phases behind.
  __device__ void await(int phase) {
    asm volatile(
        "{ .reg .pred ended;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@ended bra done;\n"
        "bra again;\n"
        "done: }" ::"r"(address()),
        "r"(phase & 1)
        : "memory");
  }
  __device__ uint32_t address() const { return shared_address(this); }

 private:
  uint64_t state_;
};

/// What threads have written of barriers and maps becomes visible to copies. A barrier of the block must
/// follow.
__device__ inline void show_barriers_to_copies() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}

/// Starts to copy a box of the map's matrix, from a row and a byte of the rows on, to shared memory that is
/// aligned as the map says; the barrier counts the bytes, of which it was told. By one thread. Parts beyond
/// the matrix become 0.
__device__ inline void start_copy(void* to, const TensorMap& map, int row, int byte,
                                  TransferBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(byte), "r"(row), "r"(barrier.address())
      : "memory");
}

/// The same of a chunked_tensor_map(), from a row and a chunk of the rows on. What is copied so is read once:
/// the L2 cache gives it up before anything else.
__device__ inline void start_chunks_copy(void* to, const TensorMap& map, int row, int chunk,
                                         TransferBarrier& barrier) {
  asm volatile(
      "{ .reg .b64 first; createpolicy.fractional.L2::evict_first.b64 first;\n"
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4}], [%5], first; }" ::"r"(shared_address(to)),
      "l"(&map), "r"(0), "r"(row), "r"(chunk), "r"(barrier.address())
      : "memory");
}

/// The same of a map of HeadRows, from a row on, which may be before the first one.
__device__ inline void start_head_copy(void* to, const TensorMap& map, int row, int head, int sequence,
                                       TransferBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(&map), "r"(0), "r"(row), "r"(head), "r"(sequence), "r"(barrier.address())
      : "memory");
}

/// Of `bytes` neighbouring bytes. These and both addresses are multiples of 16.
__device__ inline void start_copy(void* to, const void* from, int bytes, TransferBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier.address())
      : "memory");
}

/// From here on the threads of a warpgroup, all of which come here, have so many registers each: a multiple
/// of 8, more or less than before.
template <int Registers>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Waits until all threads of a cluster of thread blocks have come here. What they have read may be stored to
/// then.
__device__ inline void meet_in_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/// The same in two: between them a thread does what is no concern of the others.
__device__ inline void arrive_in_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
__device__ inline void await_cluster() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
/// Starts to store four numbers to the shared memory of the cluster's block number `block`, at the place that
/// `place` has in the own one. The barrier at the place of `barrier` there counts 16 bytes.
__device__ inline void start_store(float4* place, const Sums& sums, TransferBarrier& barrier, int block) {
  asm volatile(
      "{ .reg .b32 to, counted; mapa.shared::cluster.u32 to, %0, %6;\n"
      "mapa.shared::cluster.u32 counted, %1, %6;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%2, %3, %4, %5}, [counted]; "
      "}" ::"r"(shared_address(place)),
      "r"(barrier.address()), "f"(sums.value[0]), "f"(sums.value[1]), "f"(sums.value[2]), "f"(sums.value[3]),
      "r"(block)
      : "memory");
}

}  // namespace adtrain::kernels

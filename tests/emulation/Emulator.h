#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include <vector_types.h>

/// Runs a kernel's thread blocks on the CPU, one after the other or the blocks of a cluster together, each
/// thread as a fibre. Threads change where one waits for others, in an order that is another one with every
/// launch, so that a kernel that lacks a barrier gives other results or an error. One launch at a time.
namespace adtrain::emulation {

/// A kernel did what a GPU does not define. Thrown by launch().
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int kMultiprocessors = 2;  ///< few, so that thread blocks take several sequences
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

/// Runs `kernel` for all threads of all blocks; `threads` of a block in one dimension or two. Dynamic shared
/// memory is NaN at first, arrays of a kernel's own are as the block before left them. `name` stands in
/// errors: more than a GPU launches, lanes of a warp that differ in what they do together, addresses outside
/// dynamic shared memory, threads that wait for ever, copies for which nobody waited.
/// `cluster`: so many neighbouring blocks run at once.
void launch(const char* name, uint3 blocks, dim3 threads, int shared_bytes,
            const std::function<void()>& kernel, int cluster = 1);

/// How many launches there have been, with the one that runs.
unsigned launches();

// What follows is for kernels, inside launch().

/// Where the thread is.
struct Place {
  uint3 thread, block, block_size, blocks;
};
extern Place place;

char* shared_memory();
/// The block's number in its cluster, and the memory of another one.
int block_of_cluster();
char* shared_memory_of(int block);
/// Of a pointer into shared memory: its address there.
uint32_t shared_address(const void* pointer);
/// `bytes` bytes there, checked: inside, and aligned to their number.
char* at_shared(uint32_t address, uint32_t bytes);

/// Waits until all lanes of the warp have come here; then `operation` is done once, for all of them: `own` of
/// each lane.
using Operation = void (*)(const std::array<void*, kLanes>& lanes);
void together(Operation operation, void* own);

/// The same for barriers. `threads` = 0 is all of the block.
void barrier(int id, int threads);
/// A barrier of the four warps of a warpgroup.
void meet_in_warpgroup();

/// An asynchronous copy, of which the first `given` of `bytes` are copied and the others cleared: it happens
/// at once or when somebody waits for it, as chance wills.
void start_copy(uint32_t to, const void* from, int bytes, int given);
void close_copies();
/// Waits until of the closed groups `left` are under way; for all copies if negative.
void wait_for_copies(int left);

/// A barrier of all threads of a cluster.
void cluster_barrier();

/// Waits until happen(event). What a thread waits for may not have come true then.
void wait_for(const void* event);
void happen(const void* event);
/// Runs the task at some time, as chance wills, but before threads wait for ever. A block must wait for it.
void do_later(std::function<void()> task);

[[noreturn]] void fail(const char* what);

}  // namespace adtrain::emulation

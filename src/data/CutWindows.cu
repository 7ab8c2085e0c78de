#include "base/Launch.cuh"
#include "data/CutWindows.h"

namespace adtrain {
namespace {

constexpr int kThreads = 256;

/// One sub-history in time order.
struct SubHistory {
  const Transition* history;
  const WindowIndex& index;
  int64_t phase;
  __device__ const Transition& operator[](int64_t offset) const {
    return history[index.original_step(phase, offset)];
  }
};

__device__ void put(const WindowCut& cut, int64_t cell, const Transition& transition) {
  for (int axis = 0; axis < 2; ++axis) {
    cut.states[2 * cell + axis] = transition.state[axis];
    cut.next_states[2 * cell + axis] = transition.next_state[axis];
  }
  cut.actions[cell] = transition.action;
  cut.rewards[cell] = transition.reward;
}

/// What a compressed row says beside its transitions.
__device__ void put_query(const WindowCut& cut, int64_t row, const Window& window, int64_t previous,
                          const SubHistory& steps) {
  const int64_t query = window.start + window.current;
  // The end of the last region may be the end of the history: its query is asked in the state that was
  // reached.
  const bool beyond = query >= cut.index.sub_history_steps(window.phase);
  const uint8_t* state = beyond ? steps[query - 1].next_state : steps[query].state;
  cut.previous[row] = static_cast<int32_t>(previous);
  cut.current[row] = static_cast<int32_t>(window.current);
  for (int axis = 0; axis < 2; ++axis) cut.query_state[2 * row + axis] = state[axis];
  cut.query_action[row] = window.current < cut.index.shape().region ? steps[query].action : -1;
}

/// A thread block a row of the batch.
__global__ void __launch_bounds__(kThreads) cut_kernel(const __grid_constant__ WindowCut cut) {
  const int64_t row = blockIdx.x;
  __shared__ Window window;
  __shared__ int64_t sample, borrowed;  // borrowed: episodes
  __shared__ const Transition* episodes[BorrowedEpisodes::kMostSlots];
  if (threadIdx.x == 0) {
    sample = cut.order.sample_at(*cut.cursor + cut.first_row + row);
    window = cut.index.window(sample);
    borrowed =
        cut.borrowed.any() ? cut.borrowed.wanted(sample, cut.borrowed.slots(window.start, cut.length)) : 0;
  }
  __syncthreads();
  if (cut.borrowed.any()) {
    if (threadIdx.x < borrowed)
      episodes[threadIdx.x] = cut.borrowed.episode(sample, threadIdx.x, window.history);
    __syncthreads();
    if (threadIdx.x == 0) {
      const int64_t wanted = borrowed;
      borrowed = 0;
      while (borrowed < wanted && episodes[borrowed] != nullptr) ++borrowed;
      cut.current[row] =
          borrowed == 0
              ? 0
              : static_cast<int32_t>(borrowed * cut.borrowed.horizon - window.start % cut.borrowed.horizon);
    }
    __syncthreads();
  }
  const SubHistory steps = {cut.histories + window.history * cut.steps, cut.index, window.phase};
  const int64_t region = cut.index.shape().region;
  const int64_t previous = window.start > 0 ? region : 0;
  const int64_t transitions = region == 0 ? cut.length : previous + window.current;
  const int64_t first = region == 0 ? window.start : window.start - previous;
  for (int64_t column = threadIdx.x; column < cut.length; column += kThreads) {
    Transition transition = column < transitions ? steps[first + column] : Transition{};
    if (borrowed > 0) {
      const int64_t place = window.start % cut.borrowed.horizon + column;
      const int64_t slot = place / cut.borrowed.horizon;
      if (slot < borrowed) {
        transition = episodes[slot][place % cut.borrowed.horizon];
        transition.reward = 0;
      }
    }
    put(cut, row * cut.length + column, transition);
  }
  if (region > 0 && threadIdx.x == 0) put_query(cut, row, window, previous, steps);
}

}  // namespace

void cut_windows(const WindowCut& cut, cudaStream_t stream) {
  gpu::launch("cut_kernel", cut_kernel, static_cast<unsigned>(cut.rows), kThreads, 0, stream, cut);
}

}  // namespace adtrain

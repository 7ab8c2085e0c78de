#include "base/Cuda.h"
#include "data/CutWindows.h"

namespace adtrain {
namespace {

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

/// A thread a transition of the batch.
__global__ void cut_kernel(WindowCut cut) {
  const int64_t cell = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (cell >= cut.rows * cut.length) return;
  const int64_t row = cell / cut.length;
  const int64_t column = cell % cut.length;
  const Window window = cut.index.window(cut.order.sample_at(*cut.cursor + cut.first_row + row));
  const SubHistory steps = {cut.histories + window.history * cut.steps, cut.index, window.phase};
  const int64_t region = cut.index.shape().region;
  if (region == 0) {
    put(cut, cell, steps[window.start + column]);
    return;
  }
  const int64_t previous = window.start > 0 ? region : 0;
  const bool padding = column >= previous + window.current;
  put(cut, cell, padding ? Transition{} : steps[window.start - previous + column]);
  if (column == 0) put_query(cut, row, window, previous, steps);
}

}  // namespace

void cut_windows(const WindowCut& cut, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const int64_t blocks = (cut.rows * cut.length + kThreads - 1) / kThreads;
  cut_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(cut);
  gpu::check(cudaGetLastError(), "the launch of the kernel that cuts windows from histories");
}

}  // namespace adtrain

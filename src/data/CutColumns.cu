#include <cuda_fp16.h>

#include "base/Launch.cuh"
#include "data/CutColumns.h"

namespace adtrain {
namespace {

constexpr int kThreads = 256;
constexpr int kSteps = 256;  ///< of a row, by one thread block

/// Where a row begins.
struct RowStart {
  CutHistory history;
  int64_t start;  ///< among the history's kept steps
};

/// A kept step among the steps of all histories, and what is known of its place.
struct Step {
  int64_t at;
  bool begins;  ///< it is the history's first, or the first of an episode that others were left out before
};

__device__ Step step_of(const ColumnCut& cut, const CutHistory& history, int64_t kept) {
  if (history.runs == 0) return {history.first_step + kept, kept == 0};
  const CutRun* const runs = cut.runs + history.first_run;
  int64_t low = 0, high = history.runs;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (runs[middle].kept <= kept ? low : high) = middle;
  }
  return {history.first_step + runs[low].first + kept - runs[low].kept, kept == runs[low].kept};
}

template <class From, class To>
__device__ void copy_numbers(const CutColumn& column, const int64_t* steps, int64_t count, void* to) {
  const auto* const from = reinterpret_cast<const From*>(column.from);
  for (int64_t i = threadIdx.x; i < count * column.elements; i += kThreads) {
    const int64_t step = i / column.elements;
    static_cast<To*>(to)[i] =
        static_cast<To>(from[steps[step] * column.elements + i - step * column.elements]);
  }
}

/// Copies the numbers of these steps, one step behind the other.
__device__ void copy_steps(const CutColumn& column, const int64_t* steps, int64_t count, void* to) {
  if (column.from_bytes == 2 && column.to_bytes == 4) {
    copy_numbers<uint16_t, uint32_t>(column, steps, count, to);
  } else if (column.from_bytes == 4 && column.to_bytes == 8) {
    copy_numbers<uint32_t, uint64_t>(column, steps, count, to);
  } else if (column.from_bytes == 1) {
    copy_numbers<uint8_t, uint8_t>(column, steps, count, to);
  } else if (column.from_bytes == 2) {
    copy_numbers<uint16_t, uint16_t>(column, steps, count, to);
  } else if (column.from_bytes == 4) {
    copy_numbers<uint32_t, uint32_t>(column, steps, count, to);
  } else {
    copy_numbers<uint64_t, uint64_t>(column, steps, count, to);
  }
}

__device__ void* at_number(void* to, int64_t number, int32_t bytes) {
  return static_cast<uint8_t*>(to) + number * bytes;
}

template <class Number>
__device__ double number_at(const uint8_t* from, int64_t step) {
  return static_cast<double>(reinterpret_cast<const Number*>(from)[step]);
}

/// As Column::number.
__device__ double number_of(const uint8_t* from, ElementType type, int64_t step) {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUint8:
      return number_at<uint8_t>(from, step);
    case ElementType::kInt8:
      return number_at<int8_t>(from, step);
    case ElementType::kUint16:
      return number_at<uint16_t>(from, step);
    case ElementType::kInt16:
      return number_at<int16_t>(from, step);
    case ElementType::kUint32:
      return number_at<uint32_t>(from, step);
    case ElementType::kInt32:
      return number_at<int32_t>(from, step);
    case ElementType::kUint64:
      return number_at<uint64_t>(from, step);
    case ElementType::kInt64:
      return number_at<int64_t>(from, step);
    case ElementType::kFloat16:
      return __half2float(reinterpret_cast<const __half*>(from)[step]);
    case ElementType::kFloat32:
      return number_at<float>(from, step);
    case ElementType::kFloat64:
      break;
  }
  return number_at<double>(from, step);
}

__device__ float reward_of(const ColumnCut& cut, int64_t step, int64_t task) {
  return static_cast<float>(number_of(cut.rewards_from, cut.reward_type, step)) * cut.reward_scale[task];
}

/// The step before a row, which is zeros where the history has none, and the statistics of the row's task.
__device__ void put_row(const ColumnCut& cut, int64_t row, const RowStart& start) {
  const int64_t task = start.history.task, elements = cut.states.elements;
  const CutColumn& actions = cut.actions;
  void* const before = at_number(actions.before, row * actions.elements, actions.to_bytes);
  if (start.start > 0) {
    const int64_t step = step_of(cut, start.history, start.start - 1).at;
    copy_steps(actions, &step, 1, before);
    if (threadIdx.x == 0) cut.before_reward[row] = reward_of(cut, step, task);
  } else {
    for (int64_t i = threadIdx.x; i < actions.elements * actions.to_bytes; i += kThreads)
      static_cast<uint8_t*>(before)[i] = 0;
    if (threadIdx.x == 0) cut.before_reward[row] = 0;
  }
  if (cut.mean == nullptr) return;
  for (int64_t i = threadIdx.x; i < elements; i += kThreads) {
    cut.mean[row * elements + i] = cut.mean_from[task * elements + i];
    cut.deviation[row * elements + i] = cut.deviation_from[task * elements + i];
  }
}

/// `blocks_of_a_row` thread blocks a row of the batch.
__global__ void __launch_bounds__(kThreads)
    cut_columns_kernel(const __grid_constant__ ColumnCut cut, int64_t blocks_of_a_row) {
  const int64_t row = blockIdx.x / blocks_of_a_row;
  const int64_t first = blockIdx.x % blocks_of_a_row * kSteps;
  __shared__ RowStart start;
  __shared__ int64_t steps[kSteps];
  if (threadIdx.x == 0) {
    const WindowFinder::Place place = cut.finder.find(cut.order.sample_at(*cut.cursor + cut.first_row + row));
    start.history = cut.histories[place.history];
    start.start = start.history.first_start + place.window * cut.stride;
  }
  __syncthreads();
  const int64_t count = cut.length - first < kSteps ? cut.length - first : kSteps;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    const Step step = step_of(cut, start.history, start.start + first + i);
    const int64_t cell = row * cut.length + first + i;
    steps[i] = step.at;
    cut.rewards[cell] = reward_of(cut, step.at, start.history.task);
    cut.begins[cell] = step.begins || cut.begins_from[step.at] != 0 ? 1 : 0;
  }
  __syncthreads();
  const int64_t cell = row * cut.length + first;
  copy_steps(cut.states, steps, count,
             at_number(cut.states.to, cell * cut.states.elements, cut.states.to_bytes));
  copy_steps(cut.actions, steps, count,
             at_number(cut.actions.to, cell * cut.actions.elements, cut.actions.to_bytes));
  if (first == 0) put_row(cut, row, start);
}

}  // namespace

void cut_columns(const ColumnCut& cut, cudaStream_t stream) {
  const int64_t blocks_of_a_row = (cut.length + kSteps - 1) / kSteps;
  gpu::launch("cut_columns_kernel", cut_columns_kernel, static_cast<unsigned>(cut.rows * blocks_of_a_row),
              kThreads, 0, stream, cut, blocks_of_a_row);
}

}  // namespace adtrain

#include <cuda_fp16.h>

#include "base/Launch.cuh"
#include "data/CutColumns.h"

namespace adtrain {
namespace {

constexpr int kThreads = 256;
constexpr int kSteps = 256;  ///< of a row, by one thread block

constexpr int64_t kNoStep = -1;

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
    const int64_t place = i / column.elements, step = steps[place];
    static_cast<To*>(to)[i] =
        step < 0 ? To(0) : static_cast<To>(from[step * column.elements + i - place * column.elements]);
  }
}

/// Copies the numbers of these steps, one step behind the other; of kNoStep zeros.
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

/// Of kNoStep 0.
__device__ float reward_of(const ColumnCut& cut, int64_t step, int64_t task) {
  if (step < 0) return 0;
  return static_cast<float>(number_of(cut.rewards_from, cut.reward_type, step)) * cut.reward_scale[task];
}

__device__ int64_t step_before(const ColumnCut& cut, const CutHistory& history, int64_t kept) {
  return kept > 0 ? step_of(cut, history, kept - 1).at : kNoStep;
}

/// The step before a row, which is zeros where the history has none, and the statistics of the row's task.
__device__ void put_row(const ColumnCut& cut, int64_t row, const RowStart& start) {
  const int64_t task = start.history.task, elements = cut.states.elements;
  const CutColumn& actions = cut.actions;
  const int64_t step = step_before(cut, start.history, start.start);
  copy_steps(actions, &step, 1, at_number(actions.before, row * actions.elements, actions.to_bytes));
  if (threadIdx.x == 0) cut.before_reward[row] = reward_of(cut, step, task);
  if (cut.mean == nullptr) return;
  for (int64_t i = threadIdx.x; i < elements; i += kThreads) {
    cut.mean[row * elements + i] = cut.mean_from[task * elements + i];
    cut.deviation[row * elements + i] = cut.deviation_from[task * elements + i];
  }
}

__device__ WindowFinder::Place place_at(const ColumnCut& cut, int64_t row_of_step) {
  return cut.finder.find(cut.order.sample_at(*cut.cursor + row_of_step));
}

/// `blocks_of_a_row` thread blocks a row of the batch.
__global__ void __launch_bounds__(kThreads)
    cut_columns_kernel(const __grid_constant__ ColumnCut cut, int64_t blocks_of_a_row) {
  const int64_t row = blockIdx.x / blocks_of_a_row;
  const int64_t first = blockIdx.x % blocks_of_a_row * kSteps;
  __shared__ RowStart start;
  __shared__ int64_t steps[kSteps];
  if (threadIdx.x == 0) {
    const WindowFinder::Place place = place_at(cut, cut.first_row + row);
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

/// What a sample's row holds in `column`: of padding the last segment.
__device__ PackedSegment segment_at(const ColumnCut& cut, const WindowFinder::Place& place, int64_t column) {
  if (place.history < cut.finder.histories) return {place.history, 0, static_cast<int32_t>(cut.length)};
  int64_t low = cut.packed.first_segment[place.window], high = cut.packed.first_segment[place.window + 1];
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (cut.packed.segments[middle].column <= column ? low : high) = middle;
  }
  return cut.packed.segments[low];
}

__device__ int32_t filled_of(const ColumnCut& cut, const WindowFinder::Place& place) {
  const PackedSegment last = segment_at(cut, place, cut.length - 1);
  return last.column + last.length;
}

/// As cut_columns_kernel.
__global__ void __launch_bounds__(kThreads)
    cut_packed_kernel(const __grid_constant__ ColumnCut cut, int64_t blocks_of_a_row) {
  const int64_t row = blockIdx.x / blocks_of_a_row;
  const int64_t first = blockIdx.x % blocks_of_a_row * kSteps;
  __shared__ WindowFinder::Place place;
  __shared__ int64_t steps[kSteps], before[kSteps], tasks[kSteps];
  if (threadIdx.x == 0) {
    place = place_at(cut, cut.first_row + row);
    if (first == 0) cut.packed.filled[row] = filled_of(cut, place);
  }
  __syncthreads();
  const bool is_window = place.history < cut.finder.histories;
  const int64_t count = cut.length - first < kSteps ? cut.length - first : kSteps;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    const int64_t column = first + i, cell = row * cut.length + column;
    const PackedSegment segment = segment_at(cut, place, column);
    const CutHistory history = cut.histories[segment.history];
    const int64_t within = column - segment.column;
    const bool real = within < segment.length;
    const int64_t start = history.first_start + (is_window ? place.window * cut.stride : 0);
    const int64_t kept = start + (real ? within : segment.length - 1);
    const Step step = step_of(cut, history, kept);
    steps[i] = step.at;
    tasks[i] = history.task;
    before[i] = real ? step_before(cut, history, kept) : kNoStep;
    cut.rewards[cell] = real ? reward_of(cut, step.at, history.task) : 0.0f;
    cut.before_reward[cell] = reward_of(cut, before[i], history.task);
    cut.begins[cell] = real && (step.begins || cut.begins_from[step.at] != 0) ? 1 : 0;
    cut.packed.segment_first[cell] = real ? segment.column : static_cast<int32_t>(column);
  }
  __syncthreads();
  const int64_t cell = row * cut.length + first;
  const auto put = [&](const CutColumn& column, const int64_t* of_steps, void* to) {
    copy_steps(column, of_steps, count, at_number(to, cell * column.elements, column.to_bytes));
  };
  put(cut.states, steps, cut.states.to);
  put(cut.actions, steps, cut.actions.to);
  put(cut.actions, before, cut.actions.before);
  if (cut.mean == nullptr) return;
  const auto put_statistic = [&](const float* from, float* to) {
    put({reinterpret_cast<const uint8_t*>(from), to, nullptr, cut.states.elements, sizeof(float),
         sizeof(float)},
        tasks, to);
  };
  put_statistic(cut.mean_from, cut.mean);
  put_statistic(cut.deviation_from, cut.deviation);
}

/// One thread block.
__global__ void __launch_bounds__(kThreads) count_targets_kernel(const __grid_constant__ ColumnCut cut) {
  __shared__ int64_t counts[kThreads];
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < cut.packed.global_batch; row += kThreads)
    count += filled_of(cut, place_at(cut, row));
  counts[threadIdx.x] = count;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int thread = 1; thread < kThreads; ++thread) count += counts[thread];
  *cut.packed.step_targets = count;
}

}  // namespace

void cut_columns(const ColumnCut& cut, cudaStream_t stream) {
  const int64_t blocks_of_a_row = (cut.length + kSteps - 1) / kSteps;
  const auto blocks = static_cast<unsigned>(cut.rows * blocks_of_a_row);
  if (cut.packed.filled == nullptr) {
    gpu::launch("cut_columns_kernel", cut_columns_kernel, blocks, kThreads, 0, stream, cut, blocks_of_a_row);
    return;
  }
  gpu::launch("cut_packed_kernel", cut_packed_kernel, blocks, kThreads, 0, stream, cut, blocks_of_a_row);
  gpu::launch("count_targets_kernel", count_targets_kernel, 1, kThreads, 0, stream, cut);
}

}  // namespace adtrain

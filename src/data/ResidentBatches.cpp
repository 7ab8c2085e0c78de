#include "data/ResidentBatches.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include "data/CutWindows.h"
#include "data/TransitionWindows.h"

namespace adtrain {
namespace {

at::Tensor copy_to(at::Device device, std::span<const Transition> transitions) {
  const auto bytes = static_cast<int64_t>(transitions.size_bytes());
  // from_blob takes a mutable pointer; nothing writes through it.
  auto* data = const_cast<Transition*>(transitions.data());
  return at::from_blob(data, {bytes}, at::kByte).to(device);
}

Batch empty_batch(int64_t rows, int64_t length, bool compressed, at::Device device) {
  const auto ints = at::TensorOptions(device).dtype(at::kInt);
  Batch batch;
  batch.states = at::empty({rows, length, 2}, ints);
  batch.actions = at::empty({rows, length}, ints);
  batch.rewards = at::empty({rows, length}, ints.dtype(at::kFloat));
  batch.next_states = at::empty({rows, length, 2}, ints);
  if (compressed) {
    batch.previous = at::empty({rows}, ints);
    batch.current = at::empty({rows}, ints);
    batch.query_state = at::empty({rows, 2}, ints);
    batch.query_action = at::empty({rows}, ints);
  }
  return batch;
}

int32_t* ints_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<int32_t>() : nullptr;
}

}  // namespace

ResidentBatches::ResidentBatches(const Feed& feed, at::Device device)
    : feed_(feed),
      windows_(*feed.windows.transitions()),
      histories_(copy_to(device, windows_.histories().transitions())),
      paying_cells_(at::tensor(windows_.borrowing().paying_cells, at::kByte).to(device)),
      cursor_(feed, device) {}

Batch ResidentBatches::next() {
  const WindowShape& shape = windows_.index().shape();
  const bool compressed = shape.region > 0;
  const int64_t length = compressed ? 2 * shape.region : shape.length;
  Batch batch = empty_batch(feed_.share.micro_batch, length, compressed, cursor_.device());
  const auto* histories = reinterpret_cast<const Transition*>(histories_.const_data_ptr());
  const BorrowedEpisodes borrowed = windows_.borrowed(histories, paying_cells_.const_data_ptr<uint8_t>());
  if (borrowed.any()) batch.current = at::empty({feed_.share.micro_batch}, batch.actions.options());
  cut_windows({.histories = histories,
               .steps = windows_.histories().steps(),
               .index = windows_.index(),
               .borrowed = borrowed,
               .order = feed_.order,
               .cursor = cursor_.samples(),
               .first_row = cursor_.first_row(),
               .rows = feed_.share.micro_batch,
               .length = length,
               .states = ints_of(batch.states),
               .actions = ints_of(batch.actions),
               .rewards = batch.rewards.mutable_data_ptr<float>(),
               .next_states = ints_of(batch.next_states),
               .previous = ints_of(batch.previous),
               .current = ints_of(batch.current),
               .query_state = ints_of(batch.query_state),
               .query_action = ints_of(batch.query_action)},
              c10::cuda::getCurrentCUDAStream());
  cursor_.advance();
  return batch;
}

}  // namespace adtrain

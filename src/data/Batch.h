#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// A micro-batch of windows cut from learning histories: B rows of T transitions, on one device.
///
/// *Plain rows* (every model but compressed context): T = n_transit consecutive transitions. The context is
/// transitions 0 … T−2, the query is the state of transition T−1 and its action the target (loss at the last
/// position); or every state i is a query whose context is transitions 0 … i−1 (loss at all positions).
///
/// *Compressed rows* (`previous` and `current` defined): T = 2·interval. The first `previous[b]` transitions
/// (0 or interval) are the previous region, the next `current[b]` (0 … interval) belong to the query's
/// region; the rest is padding (zeros). With loss at the last position the query is the state after the
/// current part: its state and action are `query_state[b]`, `query_action[b]`; where current[b] = interval
/// the region is full, the target is `</compress>` and query_action[b] = −1. With loss at all positions
/// current[b] = interval in every row: states of the current region are the queries, one more query closes
/// the region, and query_state[b] is the state in which it is asked.
///
/// *Rows of any space* (`before_action` defined), for tasks of other spaces than the grid families': plain
/// rows whose states and actions are in their spaces' shapes, as narrow and as packed as they are stored.
/// What came before the first step is known, or zeros where nothing did. There are no next states. Of a
/// network for several groups of spaces, rows are those of one `group`; or there are `parts`, each of one
/// group, in order of the groups, and no tensors beside them.
///
/// *Packed rows* (`segment_first` defined) are rows of any space that hold several histories end to end, and
/// then padding, which is no target. What came before is given for each transition, and so are the
/// statistics of observations. Padding repeats the last transition's state and action, so that any encoder
/// can read it, and reads nothing but itself.
struct Batch {
  at::Tensor states;       ///< int32 (B, T, 2); of any space (B, T, …), its own type
  at::Tensor actions;      ///< int32 (B, T); of any space (B, T, …), its own type
  at::Tensor rewards;      ///< float32 (B, T)
  at::Tensor next_states;  ///< int32 (B, T, 2); not of any space

  at::Tensor previous;     ///< int32 (B), compressed rows only
  at::Tensor current;      ///< int32 (B), compressed rows; of plain ones so many first actions are no targets
  at::Tensor query_state;  ///< int32 (B, 2), compressed rows only
  at::Tensor query_action;  ///< int32 (B), compressed rows only

  /// (B, …) as actions: of the step before the first; packed (B, T, …): before each. Rows of any space only.
  at::Tensor before_action;
  at::Tensor before_reward;  ///< float32 (B), packed (B, T): of that step; rows of any space only
  at::Tensor begins;         ///< uint8 (B, T): 1 on an episode's first step; rows of any space only
  /// float32 (B, …), packed (B, T, …), as states: what observations are normalised by, where they are: (x −
  /// mean) / deviation.
  at::Tensor state_mean, state_deviation;

  /// int32 (B, T), packed rows only: the column of the first transition of each one's history; of padding its
  /// own.
  at::Tensor segment_first;
  at::Tensor filled;  ///< int32 (B), packed rows only: so many first transitions are no padding
  /// int64 (1): of packed rows, transitions of the whole step's global batch that are no padding; only of a
  /// BatchSource.
  at::Tensor step_targets;

  int64_t group = 0;         ///< place among ModelShape::spaces; rows of any space only
  std::vector<Batch> parts;  ///< of groups that have rows; empty where there are rows of one space alone
  /// int64 (B), where the network is for several groups: which of the samples that were asked for each row
  /// is.
  at::Tensor places;

  /// Rows, over all parts.
  int64_t size() const;
  bool empty() const { return parts.empty() && !states.defined(); }
  bool compressed() const { return previous.defined(); }
  bool of_any_space() const { return before_action.defined(); }
  bool packed() const { return segment_first.defined(); }

  /// The same values on another device. `non_blocking`: does not wait for copies from pinned memory.
  Batch to(at::Device device, bool non_blocking = false) const;
  /// A copy in pinned memory, from which a GPU copies asynchronously.
  Batch pinned() const;
  /// Views of so many rows from `first` on, of a batch without parts.
  Batch rows(int64_t first, int64_t count) const;
  /// How much memory all values take in one piece, in which each tensor begins at a multiple of 16 bytes.
  int64_t bytes() const;
  /// A batch of the same shapes and types without values of its own: views of `memory`, uint8 (bytes()).
  Batch within(const at::Tensor& memory) const;
  /// Overwrites this batch's values with those of one of the same shapes.
  void copy_from(const Batch& other);

 private:
  template <class Change>
  Batch changed(Change&& change) const;
};

}  // namespace adtrain

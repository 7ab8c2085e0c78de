#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/Attention.h"
#include "model/DynamicsHead.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// A network with a DynamicsHead in parts, without dropout. They borrow it.
struct ImaginationParts {
  /// (…, T, features) of transitions -> tokens (…, T, width) without positions.
  std::function<at::Tensor(const at::Tensor& features)> transitions;
  /// States' numbers (…) -> tokens of queries (…, width) without positions.
  std::function<at::Tensor(const at::Tensor& states)> queries;
  at::Tensor positions = {};  ///< (n_transit, width): added to tokens; undefined where none are
  bool rotary = false;        ///< whether blocks take rotary positions
  at::Tensor slopes = {};     ///< fp32 (heads): ALiBi's; undefined without it
  using Block = std::function<at::Tensor(const at::Tensor& x, const Rotary& rotary, const Attend& attend)>;
  std::vector<Block> blocks = {};
  /// What the heads read of the last block's output; null for that itself.
  std::function<at::Tensor(const at::Tensor& x)> behind_blocks = nullptr;
  Linear pred_action = {};
  const DynamicsHead* dynamics = nullptr;
};

/// What a network expects of actions that nobody takes: B environments with their histories, and in each K
/// courses of events that go on from its present state. Histories go through the blocks once; all courses
/// read the keys and values of that pass, and each its own imagined transitions beside them.
///
/// By plain operators in the parameters' type, on their device, which nothing here waits for; shapes depend
/// on the arguments' shapes alone, so that calls can be captured in a CUDA graph. Gradients must be off. For
/// one thread.
class Imagination {
 public:
  Imagination(ImaginationParts parts, const ModelOptions& options, const ModelShape& shape);

  /// What is expected in R states, of each action.
  struct Outlook {
    at::Tensor actions;      ///< fp32 (R, num_actions): logits of what the learner does
    at::Tensor rewards;      ///< fp32 (R, num_actions): the probability of a reward
    at::Tensor next_states;  ///< int64 (R, num_actions): numbers of the most probable ones
  };
  /// Forgets what was imagined. `history`: on the device; each row's last transitions at the end of W
  /// columns, of which the last `lengths` (B), int64, are there. states: int32 (B, 2), the present ones. R =
  /// B.
  Outlook begin(const Batch& history, const at::Tensor& lengths, const at::Tensor& states);
  /// Imagines a step of K courses of each environment: each goes on from one of the states of the last
  /// outlook, by its number `from`, int64 (B · K), by an action, int64 (B · K), to the most probable outcome.
  /// Those of one environment lie together and go on from its own states. R = B · K. History and imagined
  /// transitions must be less than n_transit.
  Outlook go_on(const at::Tensor& from, const at::Tensor& actions);

 private:
  /// Tokens (…, T, width) with the positions of slots, where they are learned.
  at::Tensor placed(const at::Tensor& tokens, const at::Tensor& slots) const;
  at::Tensor transitions_of(const at::Tensor& states, const at::Tensor& actions, const at::Tensor& rewarded,
                            const at::Tensor& next_states) const;
  /// x (R, T, width), in slots from `first` on, through all blocks, attention of block i by `attend`(i); the
  /// outlook at its last token.
  Outlook through(at::Tensor x, int64_t first, const std::function<Attend(size_t block)>& attend);
  Attend attending_history(size_t block, const at::Tensor& scores);
  /// All courses of an environment read its history, and each its own transitions, in one call.
  Attend attending_both(size_t block, int64_t courses, const at::Tensor& scores);
  /// What is added to scores: 0 where `allowed` (B, readers, read), else −∞; and ALiBi's part of `distances`
  /// (readers, read), which only ALiBi needs -> (B, 1 or heads, readers, read).
  at::Tensor scores_of(const at::Tensor& allowed, const at::Tensor& distances) const;
  /// The same of tokens in these slots of each of the K courses, which lie behind one another: of the
  /// history's W columns, and those of all courses' own tokens.
  at::Tensor scores_of_courses(const at::Tensor& places, int64_t courses) const;
  /// Slots of tokens: (T) from `first` on.
  at::Tensor slots(int64_t first, int64_t tokens, const at::Tensor& like) const;

  ImaginationParts parts_;
  ModelOptions options_;
  ModelShape shape_;
  int64_t history_ = 0;       ///< W
  int64_t imagined_ = 0;      ///< transitions of each course
  at::Tensor missing_;        ///< int64 (B, 1): first columns of the history that are not there
  Rotary rotary_;             ///< of all slots; undefined without rotary positions
  at::Tensor history_there_;  ///< bool (B, 1, W): whether a transition is there
  /// By block, keys and values of the history: (2, B, heads, W, head size).
  std::vector<at::Tensor> of_history_;
  /// By block, those of imagined transitions: (2, R, heads, transitions, head size); undefined without any.
  std::vector<at::Tensor> own_;
  at::Tensor states_;    ///< int64 (R): of the last outlook
  at::Tensor rewarded_;  ///< fp32 (R, num_actions): 1 where a reward is more probable than none
  at::Tensor next_states_;
};

}  // namespace adtrain

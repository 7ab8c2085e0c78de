#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "data/Batch.h"
#include "kernels/embedding/FusedEmbedding.h"
#include "kernels/plan/KernelPlan.h"
#include "model/Attention.h"
#include "model/BlockRecomputation.h"
#include "model/DynamicsHead.h"
#include "model/Imagination.h"
#include "model/Layers.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"
#include "model/Parameters.h"
#include "model/TokenType.h"

namespace adtrain {

/// A causal transformer over a learning history that predicts the next action of the learner.
///
/// Works on the device on which its parameters and the batch are. Dropout draws from this thread's
/// kernels::DropoutStream. Where there is none, and in plug-ins' networks and libtorch's attention on GPUs,
/// it draws from torch's default generator of that device. Nothing here waits for the device. Not
/// thread-safe, except for predict().
class AlgorithmDistillation {
 public:
  /// Initial weights are a function of `seed` and the options alone, not of rank or device (they are drawn on
  /// the CPU). The options must have passed their check. Throws ConfigError where they do not fit the shape's
  /// spaces.
  static std::unique_ptr<AlgorithmDistillation> create(const ModelOptions& options, const ModelShape& shape,
                                                       uint64_t seed);
  /// The same network with parameters that have shapes and no values: see ParameterFactory. A plug-in's
  /// network has values all the same.
  static std::unique_ptr<AlgorithmDistillation> without_values(const ModelOptions& options,
                                                               const ModelShape& shape);
  /// The network that create() gives, for parameters().load(), until which values are whatever the memory
  /// holds: with many parameters, drawing them takes longer than reading them. A plug-in's network has values
  /// all the same.
  static std::unique_ptr<AlgorithmDistillation> to_be_loaded(const ModelOptions& options,
                                                             const ModelShape& shape, uint64_t seed);
  virtual ~AlgorithmDistillation() = default;

  const ModelOptions& options() const { return options_; }
  const ModelShape& shape() const { return shape_; }
  /// Names are those of the Python projects' checkpoints (GPT-2: Hugging Face's style).
  ParameterBuffer& parameters() { return parameters_; }

  /// From now on the linear layers whose weights have these names multiply by quantised weights: see
  /// ParameterBuffer::quantise. For predictions alone.
  void quantise(const std::set<std::string>& names, const WeightQuantisation& how, at::Device device,
                at::ScalarType type);
  /// The same with matrices that were quantised before.
  void take_quantised(QuantisedMatrices matrices, const WeightQuantisation& how, at::Device device,
                      at::ScalarType type);

  /// From now on kernels that sum gradients themselves add them to `main_gradients` instead of passing them
  /// through autograd; null for none. It must outlive the backward passes.
  void send_gradients_to(MainGradients* main_gradients) { main_gradients_ = main_gradients; }
  /// Which kernels run the network where the loss reads these positions. Chosen at the first call on the
  /// parameters' current device.
  const kernels::KernelPlan& plan(LossPositions positions) const;
  /// What the backward pass of such a loss computes again, with these rates of dropout or those of training.
  BlockRecomputation recomputation(LossPositions positions, const DropoutRates& rates) const {
    return BlockRecomputation::of(options_, rates, plan(positions));
  }
  BlockRecomputation recomputation(LossPositions positions) const {
    return recomputation(positions, dropout_rates(/*training=*/true));
  }

  /// A target belongs to one query: the action that the learner took there or, with compressed context, the
  /// end of its region.
  struct Loss {
    /// fp32 scalar: sum over targets of the cross-entropy of the action (with label smoothing; nothing where
    /// a region ends) plus, with compressed context, token_type_weight × the cross-entropy of the token type,
    /// and with dynamics, dynamics_strength × what DynamicsHead::loss says of the action that was taken.
    /// Of actions of a MultiDiscrete: summed over its elements. Of those of a Box: the squared error, its
    /// mean over the elements, or with a Gaussian head minus the logarithm of the probability density. NaN
    /// passes through.
    at::Tensor sum;
    /// int64 scalar: targets that are the most probable prediction, in all of their elements. Undefined where
    /// actions are those of a Box, of which none is.
    at::Tensor correct;
    int64_t targets = 0;      ///< the divisor of a mean
    at::Tensor counted = {};  ///< int64 scalar: the same of packed rows, of which the host does not know it
  };

  /// `training`: whether dropout is on. Differentiable with respect to `parameters()` unless gradients are
  /// off. With kAll a batch of compressed rows must hold full current regions only (see Batch).
  virtual Loss loss(const Batch& batch, LossPositions positions, bool training);

  /// Logits of the predictions at a query.
  struct Predictions {
    /// (…, num_actions). Of other spaces: of a Discrete a logit a value; of a MultiDiscrete those of its
    /// elements one behind the other; of a Box a number an element, or, with a Gaussian head, the means and
    /// then the logarithms of the standard deviations.
    at::Tensor actions;
    at::Tensor token_types;  ///< (…, 3), compressed context only: see TokenType
  };

  /// fp32 logits (n, …) of the next action or token type in n environments at once, for rollouts: no dropout,
  /// no gradients.
  ///
  /// Plain rows: T = L + 1 for a context of L = 0 … n_transit − 1 transitions, the same in every row; the
  /// query is the state of the last one, whose action, reward and next state are not read. Compressed rows:
  /// `previous` and `current` may differ from row to row, each 0 … compress_interval; previous = 0 means that
  /// there is no previous region. The query is `query_state`; `query_action` may be undefined. On the CPU
  /// several threads may call it at once after plan(kLast), but for a plug-in's network.
  Predictions predict(const Batch& batch);

  /// Predictions of rows that grow by one step at a time, each from the last n_transit steps. Takes plain
  /// rows of any space of that step alone (T = 1); of a grid the transition before and the query (T = 2), at
  /// the first step the query alone. Keys and values of the steps before are kept, on the device. Up to
  /// n_transit steps the predictions are those of predict(). Borrows this network, whose parameters must
  /// stay.
  using Rolling = std::function<Predictions(const Batch& step)>;
  /// Of empty rows. Null where this network cannot: see why_not_rolling().
  Rolling rolling();
  /// Whether rows may grow beyond n_transit steps, as positions count between tokens. Keys of deeper blocks
  /// have then seen steps that the window has lost, which they had not in training. Where positions count
  /// from a window's first step, which is another one at each step from then on, rolling() must not be called
  /// any more: who goes on shows the whole window to predict().
  virtual bool rolling_slides() const { return false; }
  /// Whether each of its calls launches the same kernels on the same memory as the one before with rows of
  /// equal shape, so that a CUDA graph of one, replayed, is the next one.
  bool rolling_repeats() const {
    return why_not_rolling().empty() && plan(LossPositions::kLast).decoding_attention();
  }
  /// The reason why there is none, in words that follow "as"; empty where it can.
  virtual std::string why_not_rolling() const { return "a plug-in's networks keep no keys and values"; }

  /// What this network expects of actions that nobody takes; null where it has learnt no dynamics. Borrows
  /// it.
  std::unique_ptr<Imagination> imagination() const;

  /// The input of a block.
  struct Tokens {
    at::Tensor x;  ///< (B, tokens, width)
    TokenStreams streams;
    int64_t queries;    ///< how many of the last tokens are queries
    int64_t group = 0;  ///< of the rows: see Batch

    /// The same values on another device, enqueued there.
    Tokens to(at::Device device) const;
    /// Those that are defined, of its streams, too.
    std::vector<at::Tensor*> tensors();
  };
  /// What predict() does, in parts that run one behind the other, each where its parameters are: on another
  /// device, in another thread, while the part before runs for the next rows. Borrow this network, which
  /// must have chosen its plan for kLast. No gradients may be on.
  struct Parts {
    int64_t blocks = 0;
    std::function<Tokens(const Batch&)> embeddings;
    /// Blocks `first` … `end` − 1: returns the next one's x. The last block returns that of the queries
    /// alone.
    std::function<at::Tensor(const Tokens&, int64_t first, int64_t end)> through;
    /// Of what the last block returns.
    std::function<Predictions(const Tokens&)> head;
    /// Names of parameters that the head alone reads though they come before the blocks' in their order.
    std::vector<std::string> read_by_head = {};

    /// How many tokens of a row each block keeps keys and values of where rows grow by one step at a time; 0
    /// where none can.
    int64_t window = 0;
    /// The same parts for such rows, which are empty yet: what Rolling does. Embeddings take a step's rows,
    /// and what a block keeps is on the device where it runs. `first`: the first block of who calls them,
    /// which he runs first at each step; −1 where he begins with the embeddings. Each has parts of his own,
    /// for the same rows in the same order. A step that throws leaves the rows undefined. For one thread, on
    /// one stream. Null where rows cannot grow.
    std::function<Parts(int64_t first)> rolling = nullptr;
  };
  /// Nothing where this network is not made of such parts.
  virtual std::optional<Parts> parts() { return std::nullopt; }

  /// What `loss` and `predict` read: logits (B, Q, …), Q = 1 for kLast, one for every prefix of the window
  /// for kAll.
  virtual Predictions forward(const Batch& batch, LossPositions positions, bool training) = 0;

 protected:
  AlgorithmDistillation(const ModelOptions& options, const ModelShape& shape)
      : options_(options), shape_(shape) {}
  /// A variant's constructor must call this at its end, with all its parameters.
  void adopt(std::vector<NamedTensor> parameters) { parameters_ = ParameterBuffer(std::move(parameters)); }
  /// The same of those that the factory has made, with what its linear layers multiply by once quantised.
  void adopt(ParameterFactory& factory);
  /// Makes the head of a network with dynamics; behind all other parameters.
  void make_dynamics_head(ParameterFactory& factory) {
    if (options_.dynamics) dynamics_.emplace(factory, options_, shape_);
  }
  const DynamicsHead* dynamics() const { return dynamics_ ? &*dynamics_ : nullptr; }
  /// All but the head of dynamics, for imagination(); only networks that make one are asked.
  virtual ImaginationParts imagination_parts() const { return {}; }
  DropoutRates dropout_rates(bool training) const;
  at::ScalarType compute_type() const { return parameters_.compute_type(); }
  at::Device device() const { return parameters_.device(); }
  MainGradients* main_gradients() const { return main_gradients_; }
  /// Of logits at one query: as predict() returns them.
  static Predictions at_the_query(const Predictions& logits);
  /// The streams of the tokens x, with masks where blocks at `positions` read these.
  TokenStreams masked(const TokenStreams& streams, const at::Tensor& x, LossPositions positions) const;
  /// Embeds plain rows by one kernel.
  Tokens tokens_by_kernel(const Batch& batch, LossPositions positions,
                          const kernels::EmbeddingParameters& parameters) const;
  /// The loss of such a batch from what `head` reads at the queries (B, Q, width): by the fused kernel where
  /// that fits, and with that of the head of dynamics where there is one.
  Loss loss_at(const at::Tensor& queries, const Batch& batch, LossPositions positions,
               const Linear& head) const;
  /// That of `head` at the queries by the fused kernel, where the plan has it; `actions` int32 (B, T), of
  /// which the last Q are the targets.
  Loss fused_loss(const at::Tensor& queries, const at::Tensor& actions, const Linear& head) const;

 private:
  ModelOptions options_;
  ModelShape shape_;
  ParameterBuffer parameters_{{}};
  std::optional<DynamicsHead> dynamics_;
  /// A plan and the parameters' device when it was chosen.
  struct ChosenPlan {
    at::Device device;
    at::ScalarType type;
    kernels::KernelPlan plan;
  };
  Loss loss_of(const Predictions& logits, const at::Tensor& targets) const;
  mutable std::array<std::optional<ChosenPlan>, 2> plans_;  ///< by LossPositions
  MainGradients* main_gradients_ = nullptr;
};

}  // namespace adtrain

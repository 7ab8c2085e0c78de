#pragma once

#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "kernels/plan/MissingKernels.h"
#include "kernels/plan/NetworkShape.h"
#include "kernels/primitives/DeviceTraits.h"

namespace adtrain::kernels {

/// Which kernels run each part of a network in training. It is chosen once, from the device, the type in
/// which the forward pass computes, and the network's shape. A value type; every forward pass of the network
/// follows it.
///
/// It describes, but does not decide, what runs the plain operators. On a CPU they use vectorised kernels for
/// tensors that fit (see `cpu_attention_fits`, `cpu_rows_fit`, `cpu_elementwise_fits`).
class KernelPlan {
 public:
  enum class Blocks {
    kWhole,      ///< a transformer block runs as a few kernels of our own
    kSublayers,  ///< cuBLASLt's GEMMs, or products of quantised weights, with kernels of our own between them
    kLibrary     ///< libtorch's operators (on a CPU ours where they fit), which define the correct results
  };
  enum class Use { kWhereTheyFit, kNever };

  /// `own`: whether kernels of our own may be used on a GPU.
  KernelPlan(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type,
             Use own = Use::kWhereTheyFit);

  Blocks blocks() const { return blocks_; }
  bool whole_blocks() const { return blocks_ == Blocks::kWhole; }
  bool by_sublayers() const { return blocks_ == Blocks::kSublayers; }
  /// Whether GELU and its gradient are in the epilogues of products (mlp/GeluLayer.h), where these are large.
  bool gelu_in_epilogues() const;
  /// Whether linear layers have quantised weights.
  bool quantised() const { return network_.quantised; }
  /// Whether attention runs our own kernels: between sublayers, in networks of chosen pieces anywhere.
  bool own_attention() const { return !missing_.own_attention; }
  /// Whether our own attention streams keys and values, which are then not resident in shared memory.
  bool streams_keys() const;
  /// Whether attention in passes with gradients runs cuDNN's kernels, for networks of chosen pieces alone
  /// that do not run our own. Passes without gradients run plain operators then.
  bool cudnn_attention() const { return !missing_.cudnn_attention; }
  /// Whether attention on a GPU runs libtorch's kernels, which draw masks of their own where they drop.
  bool library_attention() const;
  /// Whether rows that grow step by step, in rollouts, run our own attention over kept keys and values; else
  /// plain operators.
  bool decoding_attention() const { return !missing_.decoding_attention; }
  /// Why they do not, as the end of a sentence; no value where they do.
  const std::optional<std::string>& why_no_decoding_attention() const { return missing_.decoding_attention; }
  bool fused_embedding() const { return !missing_.fused_embedding; }
  bool fused_loss() const { return !missing_.fused_loss; }
  /// Whether our own kernels encode the grids.
  bool fused_encoder() const { return !missing_.fused_encoder; }
  /// Whether blocks that are not of chosen pieces read the masks of TokenStreams. Making these takes longer
  /// than the embedding.
  bool reads_masks() const;
  /// Why blocks do not run as a few kernels each, as the end of a sentence; no value where they do.
  const std::optional<std::string>& why_no_whole_blocks() const { return missing_.whole_blocks; }

  /// One part of the network, described for users.
  struct Part {
    std::string name;     ///< "attention"
    std::string kernels;  ///< which kernels run it
    std::string why;      ///< why no faster kernels run it; empty where these are the fastest
  };
  /// Embedding, the encoder of observations where these are grids, norms, products, attention, MLP, loss,
  /// optimizer.
  std::vector<Part> parts() const;
  /// One line about the blocks, for the start of a run.
  std::string summary() const;

 private:
  std::vector<Part> parts_of_blocks() const;
  std::vector<Part> parts_of_quantised_blocks() const;
  Part attention_of_composed() const;
  std::vector<Part> parts_on_cpu() const;

  NetworkShape network_;
  DeviceTraits device_;
  at::ScalarType type_;
  MissingKernels missing_;
  Blocks blocks_;
};

}  // namespace adtrain::kernels

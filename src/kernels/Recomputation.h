#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

/// Activation recomputation, or gradient checkpointing (Chen et al., 2016, arXiv:1604.06174): the forward
/// pass keeps the input of a part of the network alone, and the backward pass runs the part again.
namespace adtrain::kernels {

/// What a part of the network runs for.
enum class PartRun {
  kForValues,    ///< the forward pass
  kForGradients  ///< again: for autograd's graph of it, and nobody reads the values of its result
};

/// Where a part's random numbers come from, besides from what it holds.
enum class RandomNumbers {
  kSeeds,     ///< nowhere, or from this thread's DropoutStream
  kGenerator  ///< from the default generator of its device: not while a CUDA graph is captured
};

/// A part of the network, which holds all else that it reads: both runs must be of equal values.
using RecomputedPart = std::function<at::Tensor(const at::Tensor& x, PartRun run)>;

/// part(x), of which autograd keeps x until the backward pass runs it again, with the same random numbers.
/// `parameters`: the leaves whose gradients it makes, which all require them. Those that the part passes to
/// MainGradients reach these, once. Without gradients it is part(x). Differentiable once.
at::Tensor recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters, RandomNumbers numbers,
                      const RecomputedPart& part);

}  // namespace adtrain::kernels

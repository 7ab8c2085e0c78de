#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/encoder/SymbolGrid.h"

/// The encoder of grids of symbols as one autograd operation on our own GPU kernels. The plain operators of
/// ObservationEncoder define the correct results.
namespace adtrain::kernels {

/// `cells`: (…, height, width) of packed numbers, else (…, height, width, digits), each counted from 0.
/// `parameters`: in bf16 or fp16, consecutive in the model in this order: the embeddings of each digit,
/// weight and bias of three convolutions, and weight and bias of the linear layer where it is fused. -> (…,
/// features) of their type.
///
/// The parameters' gradients are added to `main_gradients` if it is not null; else autograd gets them.
at::Tensor fused_symbolic_encoder(const SymbolGrid& grid, const at::Tensor& cells,
                                  const std::vector<at::Tensor>& parameters, MainGradients* main_gradients);

}  // namespace adtrain::kernels

#include "kernels/encoder/FusedSymbolicEncoder.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/GradientAccumulation.h"
#include "kernels/encoder/SymbolicEncoder.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;
using Shape = SymbolicEncoderShape;

SymbolicEncoderWeights weights_of(const Shape& shape, at::TensorList parameters) {
  SymbolicEncoderWeights weights = {};
  size_t next = 0;
  for (int digit = 0; digit < shape.digits; ++digit) {
    weights.embeddings[digit] = parameters[next++].const_data_ptr();
  }
  for (int layer = 0; layer < Shape::kConvolutions; ++layer) {
    weights.convolution[layer] = parameters[next++].const_data_ptr();
    weights.bias[layer] = parameters[next++].const_data_ptr();
  }
  if (shape.linear) {
    weights.linear = parameters[next++].const_data_ptr();
    weights.linear_bias = parameters[next++].const_data_ptr();
  }
  return weights;
}

class FusedSymbolicEncoder : public autograd::Function<FusedSymbolicEncoder> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, at::TensorList parameters,
                            const SymbolGrid& grid, const at::Tensor& cells, MainGradients* main_gradients) {
    const c10::cuda::CUDAGuard guard(parameters.front().device());
    const auto like = parameters.front().options().requires_grad(false);
    std::vector<int64_t> extents = cells.sizes().vec();
    extents.resize(extents.size() - (grid.packed ? 2 : 3));
    const at::Tensor numbers = cells.scalar_type() == at::kByte ? cells : cells.to(at::kInt);
    const Shape shape =
        grid.shape(c10::multiply_integers(extents),
                   parameters.front().scalar_type() == at::kHalf ? ShortType::kHalf : ShortType::kBFloat16);
    auto remembered = c10::make_intrusive<Remembered>(
        shape, grid.packed, main_gradients, numbers.contiguous(), at::empty({shape.table_size()}, like));
    extents.push_back(shape.features());
    at::Tensor features = at::empty(extents, like);
    const SymbolicEncoderWeights weights = weights_of(shape, parameters);
    make_symbol_table(shape, weights, remembered->table.data_ptr(), current_stream());
    encode_symbols(shape, remembered->symbols(), remembered->table.const_data_ptr(), weights,
                   features.data_ptr(), current_stream());
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(remembered));
    return features;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list parameters = context->get_saved_variables();
    const Shape& shape = remembered->shape;
    const c10::cuda::CUDAGuard guard(gradients[0].device());
    const at::Tensor d_features = gradients[0].contiguous();
    GradientAccumulation place(parameters, remembered->main_gradients);
    const auto convolution = static_cast<size_t>(shape.digits);  // the first one's weight
    const size_t behind_table = convolution + 2;
    const at::Tensor d_weights = place.of(behind_table, parameters.size() - behind_table);
    const at::Tensor d_table = at::zeros({kSymbolTableGradient}, d_features.options().dtype(at::kFloat));
    const int count = symbolic_encoder_parts(shape);
    const at::Tensor of_table = parts_for(count, d_table), of_weights = parts_for(count, d_weights);
    const SymbolicEncoderWeights weights = weights_of(shape, parameters);
    encode_symbols_backward(shape, remembered->symbols(), remembered->table.const_data_ptr(), weights,
                            d_features.const_data_ptr(), of_table.data_ptr<float>(),
                            of_weights.data_ptr<float>(), current_stream());
    add_up(of_weights, d_weights);
    add_up(of_table, d_table);
    const auto gradient_of = [&](size_t parameter) { return place.of(parameter).data_ptr<float>(); };
    float* embeddings[Shape::kMostDigits] = {};
    for (size_t digit = 0; digit < convolution; ++digit) embeddings[digit] = gradient_of(digit);
    symbol_table_backward(shape, weights, d_table.const_data_ptr<float>(), embeddings,
                          gradient_of(convolution), gradient_of(convolution + 1), current_stream());
    autograd::variable_list result = place.finish();
    result.resize(result.size() + 3);  // grid, cells and main gradients get no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(const Shape& of_tokens, bool of_packed, MainGradients* to, at::Tensor of_cells,
               at::Tensor of_corners)
        : shape(of_tokens),
          packed(of_packed),
          main_gradients(to),
          numbers(std::move(of_cells)),
          table(std::move(of_corners)) {}

    SymbolArray symbols() const {
      return {numbers.const_data_ptr(), numbers.scalar_type() == at::kByte, packed};
    }

    Shape shape;
    bool packed;
    MainGradients* main_gradients;
    at::Tensor numbers, table;
  };
};

}  // namespace

at::Tensor fused_symbolic_encoder(const SymbolGrid& grid, const at::Tensor& cells,
                                  const std::vector<at::Tensor>& parameters, MainGradients* main_gradients) {
  return FusedSymbolicEncoder::apply(at::TensorList(parameters), grid, cells, main_gradients);
}

}  // namespace adtrain::kernels

#include "kernels/block/stack/StackDecoder.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/MatrixOperation.h"
#include "kernels/block/stack/DecodingStack.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/primitives/DeviceTraits.h"
#include "kernels/quantised/QuantisedOperands.h"

namespace adtrain::kernels {
namespace {

constexpr int64_t kWidth = StackShape::kWidth;

struct MatrixSizes {
  int64_t out, in;
};
constexpr std::array<MatrixSizes, kMatrices> kSizes = {
    {{3 * kWidth, kWidth}, {kWidth, kWidth}, {StackShape::kInner, kWidth}, {kWidth, StackShape::kInner}}};

/// `first`: of the network.
bool fits(const QuantisedMatrix& matrix, const MatrixSizes& sizes, const QuantisedMatrix& first) {
  const WeightForm form = form_of(matrix);
  const bool scaled_so = form == WeightForm::kEightBits ||
                         (form == WeightForm::kFourBits && matrix.block_size == StackShape::kScaledAlike);
  return scaled_so && form == form_of(first) && matrix.out_features == sizes.out &&
         matrix.in_features == sizes.in &&
         (form == WeightForm::kEightBits || at::equal(matrix.code_map, first.code_map));
}

bool fits(const StackableBlock& block, const StackableBlock& first, int64_t rows, at::ScalarType type) {
  for (size_t i = 0; i < kMatrices; ++i)
    if (!fits(block.matrices[i], kSizes[i], first.matrices[0])) return false;
  const bool layer_norm = first.norms[0].bias.defined();
  const auto of_kind = [&](const NormWeights& norm) {
    return norm.weight.defined() && norm.bias.defined() == layer_norm;
  };
  const auto is_known = [&](const at::Tensor& products) { return products.defined() == layer_norm; };
  const std::vector<int64_t> ring = {rows, StackShape::kHeads, first.ring.keys.size(2),
                                     StackShape::kHeadSize};
  const HeadNorms& heads = block.head_norms;
  const bool heads_fit = !heads.defined() || (of_kind(heads.queries) && of_kind(heads.keys));
  return heads_fit && std::ranges::all_of(block.norms, of_kind) &&
         std::ranges::all_of(block.norm_products, is_known) && block.ring.keys.sizes() == ring &&
         block.ring.keys.scalar_type() == type;
}

/// `device`: the current one.
bool runs_here(const at::Device& device) {
  const auto traits = DeviceTraits::of(device);
  return traits.multiplies_by_warpgroups() && traits.runs_large_kernels() &&
         processors() >= StackShape::kThreadBlocks;
}

}  // namespace

/// The exchange is cleared on a stream of its own, so that a step does not wait for that.
struct StackDecoder::Preparation {
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  at::cuda::CUDAEvent free, cleared;
  bool is_under_way = false;
};

bool StackDecoder::is_for(const std::vector<StackableBlock>& blocks, int64_t rows, at::ScalarType type) {
  if (blocks.empty() || std::ssize(blocks) > StackShape::kMostBlocks || rows < 1 ||
      rows > StackShape::kMostRows || type == at::kFloat || blocks.front().ring.window() < 2)
    return false;
  return std::ranges::all_of(
      blocks, [&](const StackableBlock& block) { return fits(block, blocks.front(), rows, type); });
}

std::optional<StackDecoder> StackDecoder::of(const std::vector<StackableBlock>& blocks, int64_t rows,
                                             at::ScalarType type, DistancePenalty penalty) {
  if (blocks.empty()) return std::nullopt;
  const StackableBlock& first = blocks.front();
  const at::Device device = first.ring.keys.device();
  if (!device.is_cuda()) return std::nullopt;
  const c10::cuda::CUDAGuard guard(device);
  if (!runs_here(device) || !is_for(blocks, rows, type)) return std::nullopt;
  StackDecoder decoder;
  decoder.rows_ = rows;
  decoder.window_ = first.ring.window();
  decoder.count_ = std::ssize(blocks);
  decoder.type_ = type;
  decoder.penalty_ = penalty;
  decoder.layer_norm_ = first.norms[0].bias.defined();
  const WeightForm form = form_of(first.matrices[0]);
  const bool in_8_bits = form == WeightForm::kEightBits;
  decoder.code_map_ = first.matrices[0].code_map;
  const auto numbers = at::TensorOptions(type).device(device);
  const at::Tensor no_bias = at::zeros({StackShape::kInner}, numbers),
                   no_products = at::zeros({2, StackShape::kInner}, numbers.dtype(at::kFloat));
  const auto kept = [&](const at::Tensor& tensor) {
    decoder.read_.push_back(readable(tensor));
    return decoder.read_.back().data_ptr();
  };
  std::vector<StackedBlock> places(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const StackableBlock& block = blocks[i];
    StackedBlock::Operands& operands = places[i].operands;
    for (size_t m = 0; m < kMatrices; ++m) {
      const auto [out, in] = kSizes[m];
      places[i].codes[m] = chunked_tensor_map(kept(block.matrices[m].codes), out, in_8_bits ? in : in / 2,
                                              StackShape::kTile, StackShape::code_chunks(form));
      const void* const absmax = kept(block.matrices[m].absmax);
      if (in_8_bits) {
        places[i].row_scales[m] = static_cast<const float*>(absmax);
      } else {
        const int64_t scale_bytes = in / StackShape::kScaledAlike * static_cast<int64_t>(sizeof(float));
        places[i].scales[m] = tensor_map(absmax, out, scale_bytes, StackShape::kTile);
      }
      operands.bias[m] = kept(block.biases[m].defined() ? block.biases[m] : no_bias);
    }
    for (size_t n = 0; n < 2; ++n) {
      const at::Tensor& products = block.norm_products[n];
      operands.norms[n] = {kept(block.norms[n].weight),
                           static_cast<const float*>(kept(products.defined() ? products : no_products))};
    }
    const auto vectors = [&](const NormWeights& norm) -> HeadNormVectors {
      const auto of = [&](const at::Tensor& parameter) {
        return parameter.defined() ? static_cast<const Vector*>(kept(parameter)) : nullptr;
      };
      return {of(norm.weight), of(norm.bias)};
    };
    operands.query = vectors(block.head_norms.queries);
    operands.key = vectors(block.head_norms.keys);
    operands.keys = block.ring.keys.data_ptr();
    operands.values = block.ring.values.data_ptr();
    operands.key_norms = block.ring.key_norms.data_ptr<float>();
    for (const at::Tensor& of_ring : {block.ring.keys, block.ring.values, block.ring.key_norms})
      decoder.read_.push_back(of_ring);
  }
  decoder.blocks_ =
      at::from_blob(places.data(), {static_cast<int64_t>(sizeof(StackedBlock)) * decoder.count_},
                    at::TensorOptions(at::kByte))
          .to(device);
  decoder.exchange_ =
      at::empty({exchange_words(rows, decoder.count_)}, at::TensorOptions(at::kInt).device(device));
  decoder.preparation_ = std::make_shared<Preparation>();
  load_decode_stack(type_of(first.ring.keys), form);
  return decoder;
}

bool StackDecoder::takes(const at::Tensor& x) const {
  return x.dim() == 3 && x.size(0) == rows_ && x.size(1) == 1 && x.scalar_type() == type_ &&
         x.device() == blocks_.device();
}

void StackDecoder::clear(cudaStream_t stream) const {
  clear_exchange(static_cast<uint32_t*>(exchange_.data_ptr()), rows_, count_, stream);
}

void StackDecoder::prepare() const {
  const c10::cuda::CUDAGuard guard(exchange_.device());
  Preparation& beside = *preparation_;
  beside.free.record();
  beside.free.block(beside.stream);
  clear(beside.stream);
  beside.cleared.record(beside.stream);
  beside.is_under_way = true;
}

at::Tensor StackDecoder::operator()(const at::Tensor& x, const at::Tensor& tokens) const {
  TORCH_CHECK(takes(x), "a decoder of ", rows_, " rows of ", type_, " cannot take ", x.sizes(), " of ",
              x.scalar_type());
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor input = readable(x);
  at::Tensor output = at::empty(x.sizes(), x.options().requires_grad(false));
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  if (std::exchange(preparation_->is_under_way, false)) {
    preparation_->cleared.block(stream);
  } else {
    clear(stream);
  }
  decode_stack({.blocks = static_cast<const StackedBlock*>(blocks_.const_data_ptr()),
                .count = static_cast<int>(count_),
                .rows = static_cast<int>(rows_),
                .type = type_of(x),
                .form = code_map_.defined() ? WeightForm::kFourBits : WeightForm::kEightBits,
                .code_map = code_map_.defined() ? code_map_.const_data_ptr<float>() : nullptr,
                .layer_norm = layer_norm_,
                .epsilon = static_cast<float>(kNormEpsilon),
                .window = static_cast<int>(window_),
                .alibi = penalty_ == DistancePenalty::kAlibi,
                .tokens = tokens.const_data_ptr<int64_t>(),
                .input = input.const_data_ptr(),
                .output = output.data_ptr(),
                .exchange = static_cast<uint32_t*>(exchange_.data_ptr())},
               stream);
  return output;
}

}  // namespace adtrain::kernels

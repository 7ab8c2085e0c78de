#include "training/Optimizer.h"

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

namespace adtrain {
namespace {

LowPrecisionType low_precision_type(const at::Tensor& low_precision) {
  if (!low_precision.defined()) return LowPrecisionType::kNone;
  if (low_precision.scalar_type() == at::kHalf) return LowPrecisionType::kHalf;
  if (low_precision.scalar_type() == at::kBFloat16) return LowPrecisionType::kBFloat16;
  throw std::invalid_argument(fmt::format(
      "The low_precision of parameters is of type {}; expected one of 16-bit floating-point numbers.",
      c10::toString(low_precision.scalar_type())));
}

std::vector<FlatShards::Place> whole(const at::Tensor& parameters) {
  const Part all = {0, parameters.numel()};
  return {{.bucket = all, .own = all}};
}

int64_t size_of(const std::vector<FlatShards::Place>& parts) {
  return parts.back().in_shard + parts.back().own.size;
}

at::Tensor part_of(const at::Tensor& flat, const Part& part) {
  return flat.narrow(0, part.begin, part.size);
}

}  // namespace

Optimizer::Optimizer(const at::Tensor& parameters, const TrainingOptions& options, FlatShards* shards)
    : shards_(shards),
      parts_(shards != nullptr ? shards->places() : whole(parameters)),
      parameters_(parameters.detach()),
      first_moment_(at::zeros({size_of(parts_)}, parameters_.options())),
      second_moment_(at::zeros_like(first_moment_)),
      step_count_(at::zeros({}, parameters_.options())),
      gradient_norm_(at::zeros({}, parameters_.options())),
      // The kernels take a float; on the CPU torch's operator takes any type.
      learning_rate_(
          at::zeros({}, parameters_.options().dtype(parameters_.is_cuda() ? at::kFloat : at::kDouble))),
      rule_{.beta1 = options.beta1,
            .beta2 = options.beta2,
            .epsilon = options.adam_epsilon,
            .weight_decay = options.weight_decay,
            .max_grad_norm = options.max_grad_norm} {
  if (parameters_.is_cuda()) {
    kernel_memory_ = at::zeros({sizeof(AdamWMemory)}, parameters_.options().dtype(at::kByte));
  }
}

void Optimizer::set_learning_rate(double rate) {
  learning_rate_.fill_(rate);
}

void Optimizer::step(const at::Tensor& gradient, LossScale* loss_scale, const at::Tensor& low_precision) {
  const at::NoGradGuard no_grad;
  rounded_ = sharded() && low_precision.defined();
  if (parameters_.is_cuda()) {
    step_by_kernels(gradient, loss_scale, low_precision);
  } else {
    step_by_operators(gradient, loss_scale, low_precision);
  }
  if (sharded()) shards_->finish_all_gather();
}

void Optimizer::step_by_operators(const at::Tensor& gradient, LossScale* loss_scale,
                                  const at::Tensor& low_precision) {
  std::vector<at::Tensor> gradients;
  for (const FlatShards::Place& place : parts_) {
    if (place.own.size > 0) gradients.push_back(part_of(gradient, place.own));
  }
  std::optional<at::Tensor> overflow;
  if (loss_scale != nullptr) {
    loss_scale->unscale(gradients);
    overflow = loss_scale->overflow();
  }
  gradient_norm_.copy_(sharded() ? norm_over_ranks(gradients, overflow) : gradient.norm());
  if (rule_.max_grad_norm > 0) {
    // PyTorch's clip_grad_norm_: the 1e-6 keeps a zero gradient from dividing by zero.
    const at::Tensor factor = (rule_.max_grad_norm / (gradient_norm_ + 1e-6)).clamp_max(1.0);
    for (at::Tensor& part : gradients) part.mul_(factor);
  }
  step_count_.add_(1);
  for (size_t index = 0; index < parts_.size(); ++index) {
    const auto& [bucket, own, in_shard] = parts_[index];
    if (own.size > 0) {
      const Part of_shard = {in_shard, own.size};
      at::_fused_adamw_({part_of(parameters_, own)}, {part_of(gradient, own)},
                        {part_of(first_moment_, of_shard)}, {part_of(second_moment_, of_shard)},
                        /*max_exp_avg_sqs=*/{}, {step_count_}, learning_rate_, rule_.beta1, rule_.beta2,
                        rule_.weight_decay, rule_.epsilon,
                        /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, overflow);
      if (low_precision.defined()) part_of(low_precision, own).copy_(part_of(parameters_, own));
    }
    start_all_gather(index, low_precision);
  }
  if (overflow) step_count_.sub_(*overflow);  // a skipped step does not count
  gradient.zero_();
}

at::Tensor Optimizer::norm_over_ranks(const std::vector<at::Tensor>& gradients,
                                      std::optional<at::Tensor> overflow) {
  at::Tensor found = at::zeros({2}, at::kDouble);  // squares, ranks that overflow
  for (const at::Tensor& part : gradients) {
    found[0].add_(at::linalg_vector_norm(part, 2, at::OptionalIntArrayRef(), false, at::kDouble).square());
  }
  if (overflow) found[1].copy_(*overflow);
  shards_->sum(found);
  if (overflow) overflow->copy_(found[1].clamp_max(1));
  return found[0].sqrt();
}

void Optimizer::step_by_kernels(const at::Tensor& gradient, LossScale* loss_scale,
                                const at::Tensor& low_precision) {
  for (const at::Tensor* beside : {&gradient, &low_precision}) {
    if (beside->defined() && (beside->sizes() != parameters_.sizes() || !beside->is_contiguous())) {
      throw std::invalid_argument("A gradient and an low_precision lie like the parameters.");
    }
  }
  const c10::cuda::CUDAGuard guard(parameters_.device());
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  const bool scaled = loss_scale != nullptr;
  const auto step_of = [&](const FlatShards::Place& place) -> AdamWStep {
    return {.size = place.own.size,
            .gradient = gradient.mutable_data_ptr<float>() + place.own.begin,
            .parameters = parameters_.mutable_data_ptr<float>() + place.own.begin,
            .first_moment = first_moment_.mutable_data_ptr<float>() + place.in_shard,
            .second_moment = second_moment_.mutable_data_ptr<float>() + place.in_shard,
            .low_precision = low_precision.defined()
                                 ? static_cast<uint16_t*>(low_precision.mutable_data_ptr()) + place.own.begin
                                 : nullptr,
            .low_precision_type = low_precision_type(low_precision),
            .learning_rate = learning_rate_.const_data_ptr<float>(),
            .step_count = step_count_.mutable_data_ptr<float>(),
            .gradient_norm = gradient_norm_.mutable_data_ptr<float>(),
            .loss_factor = scaled ? loss_scale->factor().const_data_ptr<float>() : nullptr,
            .overflow = scaled ? loss_scale->overflow().mutable_data_ptr<float>() : nullptr,
            .memory = static_cast<AdamWMemory*>(kernel_memory_.mutable_data_ptr())};
  };
  if (!sharded()) return take_adamw_step(rule_, step_of(parts_.front()), stream);

  at::Tensor found =
      kernel_memory_.narrow(0, offsetof(AdamWMemory, found), sizeof(AdamWMemory::found)).view(at::kFloat);
  found.zero_();
  for (const FlatShards::Place& place : parts_) measure_adamw_part(rule_, step_of(place), stream);
  shards_->sum(found);
  decide_adamw_step(rule_, step_of(parts_.front()), stream);
  for (size_t index = 0; index < parts_.size(); ++index) {
    update_adamw_part(rule_, step_of(parts_[index]), stream);
    start_all_gather(index, low_precision);
  }
  gradient.zero_();  // the rest of it holds what other ranks have summed
}

void Optimizer::start_all_gather(size_t index, const at::Tensor& low_precision) {
  if (sharded()) shards_->start_all_gather(low_precision.defined() ? low_precision : parameters_, index);
}

void Optimizer::gather_parameters() {
  if (rounded_) shards_->all_gather(parameters_);
}

Optimizer::Moments Optimizer::moments_on_root() {
  if (!sharded()) return {first_moment_, second_moment_};
  const int64_t elements = parameters_.numel();
  at::Tensor first = shards_->gather_on_root(first_moment_, elements);
  return {std::move(first), shards_->gather_on_root(second_moment_, elements)};
}

void Optimizer::take_moments_of_root(const Moments& moments) {
  shards_->scatter_from_root(moments.first, first_moment_);
  shards_->scatter_from_root(moments.second, second_moment_);
}

}  // namespace adtrain

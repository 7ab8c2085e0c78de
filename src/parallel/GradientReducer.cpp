#include "parallel/GradientReducer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "collectives/RecordedCall.h"
#include "watchdog/Activity.h"

namespace adtrain {

namespace {

bool is_short(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kHalf || parameter.scalar_type() == at::kBFloat16;
}

FlatLayout layout_of(at::TensorList parameters) {
  if (parameters.empty()) throw std::invalid_argument("A gradient reducer needs at least one parameter.");
  for (const at::Tensor& parameter : parameters) {
    const bool known = parameter.scalar_type() == at::kFloat || is_short(parameter);
    if (!known || !parameter.is_leaf() || !parameter.requires_grad()) {
      throw std::invalid_argument(
          "A gradient reducer takes float32 or 16-bit floating-point leaves that require gradients.");
    }
  }
  return FlatLayout::of(parameters);
}

}  // namespace

/// Autograd calls this when a parameter's gradient has been accumulated.
class GradientReducer::ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(GradientReducer& reducer, size_t parameter) : reducer_(reducer), parameter_(parameter) {}
  void operator()(const at::Tensor&) override { reducer_.gradient_ready(parameter_); }

 private:
  GradientReducer& reducer_;
  size_t parameter_;
};

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, Communicator& communicator,
                                 ReducerOptions options, GradientSource source)
    : parameters_(std::move(parameters)),
      layout_(layout_of(parameters_)),
      communicator_(communicator),
      source_(source),
      exposed_(parameters_.front().device()) {
  make_views();
  make_buckets(options);
  if (source_ == GradientSource::kCaller) return;
  if (communicator_.world_size() > 1 || std::ranges::any_of(parameters_, is_short)) listen();
}

GradientReducer::~GradientReducer() {
  if (source_ == GradientSource::kCaller) return;
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void GradientReducer::make_views() {
  flat_ = at::zeros({layout_.total()}, parameters_.front().options().dtype(at::kFloat).requires_grad(false));
  for (size_t index = 0; index < parameters_.size(); ++index) {
    at::Tensor& parameter = parameters_[index];
    views_.push_back(flat_.narrow(0, layout_.offset(index), parameter.numel()).view(parameter.sizes()));
    if (source_ == GradientSource::kAutograd) {
      parameter.mutable_grad() = is_short(parameter) ? at::Tensor() : views_.back();
    }
  }
}

void GradientReducer::make_buckets(ReducerOptions options) {
  bucket_of_.resize(parameters_.size());
  int64_t end = layout_.total();  // of the bucket being filled
  size_t end_of_bucket = parameters_.size();
  for (size_t index = parameters_.size(); index-- > 0;) {
    const int64_t begin = layout_.offset(index);  // of the parameters from this one on
    bucket_of_[index] = buckets_.size();
    const int64_t limit = buckets_.empty() ? options.first_bucket_bytes : options.bucket_bytes;
    if ((end - begin) * static_cast<int64_t>(sizeof(float)) >= limit || index == 0) {
      const at::Tensor view = flat_.narrow(0, begin, end - begin);
      const bool rounds = options.wire == WireType::kBFloat16 && view.is_cuda();
      buckets_.push_back({.view = view,
                          .wire = rounds ? at::empty_like(view, at::kBFloat16) : view,
                          .sum = nullptr,
                          .first = index,
                          .end = end_of_bucket});
      end = begin;
      end_of_bucket = index;
    }
  }
}

void GradientReducer::listen() {
  for (size_t index = 0; index < parameters_.size(); ++index) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[index],
                                                   std::make_unique<ReadyHook>(*this, index));
  }
}

void GradientReducer::begin_micro_step(bool communicates) {
  communicates_ = communicates && communicator_.world_size() > 1;
  for (Bucket& bucket : buckets_) bucket.missing = static_cast<int64_t>(bucket.end - bucket.first);
}

void GradientReducer::gradient_ready(size_t parameter) {
  if (is_short(parameters_[parameter])) {
    const at::Tensor gradient = parameters_[parameter].grad();
    if (!gradient.defined()) return;  // it is reported together with others: see added()
    views_[parameter].add_(gradient);
    parameters_[parameter].mutable_grad() = at::Tensor();
  }
  arrived(parameter);
}

void GradientReducer::arrived(size_t parameter) {
  if (!communicates_) return;
  const size_t bucket = bucket_of_[parameter];
  if (bucket < started_) {
    throw std::logic_error(
        "A gradient came after its bucket was sent: there is to be one backward pass between "
        "begin_micro_step(true) and finish().");
  }
  --buckets_[bucket].missing;
  while (started_ < buckets_.size() && buckets_[started_].missing == 0) start_next_bucket();
  communicator_.progress();
}

bool GradientReducer::multiply_sums_by(double factor) {
  const bool rounds = !buckets_.front().wire.is_same(buckets_.front().view);
  if (communicator_.world_size() == 1 || !communicator_.sums_without_copies() || rounds) return false;
  factor_ = factor;
  return true;
}

bool GradientReducer::is_large(size_t parameter) const {
  // Below this, an operation more in a bucket costs more than a copy of the gradient.
  constexpr int64_t kLarge = 256 << 10;
  return parameters_[parameter].numel() >= kLarge;
}

void GradientReducer::arrived_at(size_t parameter, const at::Tensor& gradient) {
  buckets_[bucket_of_[parameter]].elsewhere[parameter] = gradient;
  arrived(parameter);
}

size_t GradientReducer::index_of(const at::Tensor& parameter) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const at::Tensor& known) { return known.is_same(parameter); });
  if (found == parameters_.end()) throw std::logic_error("A gradient came for a parameter of nobody's.");
  return static_cast<size_t>(found - parameters_.begin());
}

at::Tensor GradientReducer::place_of(at::TensorList parameters) {
  const size_t first = index_of(parameters.front()), end = first + parameters.size();
  if (index_of(parameters.back()) + 1 != end) {
    throw std::logic_error("Gradients that come together must be of neighbouring parameters.");
  }
  const int64_t begin = layout_.offset(first);
  const int64_t behind = end < parameters_.size() ? layout_.offset(end) : layout_.total();
  return flat_.narrow(0, begin, behind - begin);
}

void GradientReducer::added(at::TensorList parameters) {
  const size_t first = index_of(parameters.front());
  for (size_t index = first + parameters.size(); index-- > first;) arrived(index);
}

void GradientReducer::start_next_bucket() {
  const RecordedCall recorded(RecordedCall::kGradientsStart);
  Bucket& bucket = buckets_[started_++];
  copy_small(bucket);
  if (!bucket.wire.is_same(bucket.view)) bucket.wire.copy_(bucket.view);
  bucket.sum =
      factor_ ? communicator_.start_sums(summands_of(bucket)) : communicator_.start_all_reduce(bucket.wire);
  bucket.elsewhere.clear();
}

void GradientReducer::copy_small(const Bucket& bucket) {
  std::vector<at::Tensor> places, gradients;
  for (const auto& [parameter, gradient] : bucket.elsewhere) {
    if (is_large(parameter)) continue;
    places.push_back(views_[parameter]);
    gradients.push_back(gradient);
  }
  if (!places.empty()) at::_foreach_copy_(places, gradients);  // on a GPU one kernel for all
}

std::vector<Communicator::Summand> GradientReducer::summands_of(const Bucket& bucket) const {
  std::vector<Communicator::Summand> summands;
  const auto add = [&](int64_t begin, int64_t end, const at::Tensor& from) {
    if (end == begin) return;
    const at::Tensor here = flat_.narrow(0, begin, end - begin);
    summands.push_back({.from = from.defined() ? from : here, .to = here, .factor = *factor_});
  };
  int64_t begin = bucket.view.storage_offset();
  for (size_t index = bucket.first; index < bucket.end; ++index) {
    if (!is_large(index)) continue;
    const int64_t offset = layout_.offset(index), end = offset + parameters_[index].numel();
    const auto elsewhere = bucket.elsewhere.find(index);
    add(begin, offset, {});
    add(offset, end, elsewhere == bucket.elsewhere.end() ? at::Tensor() : elsewhere->second);
    begin = end;
  }
  add(begin, bucket.view.storage_offset() + bucket.view.numel(), {});
  return summands;
}

int64_t GradientReducer::bytes() const {
  size_t sum = flat_.nbytes();
  for (const Bucket& bucket : buckets_) {
    if (!bucket.wire.is_alias_of(flat_)) sum += bucket.wire.nbytes();
  }
  return static_cast<int64_t>(sum);
}

void GradientReducer::finish() {
  communicates_ = false;
  if (communicator_.world_size() == 1) return;
  exposed_.begin();
  while (started_ < buckets_.size()) start_next_bucket();
  const Activity::Waiting waiting("the gradients' all-reduce");
  const RecordedCall recorded(RecordedCall::kGradientsWait);
  for (Bucket& bucket : buckets_) {
    bucket.sum->wait();
    bucket.sum.reset();
    if (!bucket.wire.is_same(bucket.view)) bucket.view.copy_(bucket.wire);
  }
  started_ = 0;
  exposed_.end();
}

void GradientReducer::abandon() {
  communicates_ = false;
  started_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.sum.reset();
    bucket.elsewhere.clear();
  }
}

void GradientReducer::zero() {
  flat_.zero_();
}

}  // namespace adtrain

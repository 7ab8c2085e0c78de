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
      has_sums_(parameters_.size(), false),
      exposed_(parameters_.front().device()) {
  make_views();
  const BucketLayout buckets(layout_, options);
  make_buckets(buckets, options.wire);
  if (options.shards && communicator_.world_size() > 1) {
    shards_ = std::make_unique<FlatShards>(buckets, communicator_, flat_.device());
  }
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

void GradientReducer::make_buckets(const BucketLayout& layout, WireType wire) {
  bucket_of_.resize(parameters_.size());
  for (const auto& [part, first, end] : layout.buckets()) {
    const at::Tensor view = flat_.narrow(0, part.begin, part.size);
    const bool rounds = wire == WireType::kBFloat16 && view.is_cuda();
    for (size_t index = first; index < end; ++index) bucket_of_[index] = buckets_.size();
    buckets_.push_back({.view = view,
                        .wire = rounds ? at::empty_like(view, at::kBFloat16) : view,
                        .sum = nullptr,
                        .first = first,
                        .end = end});
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
    has_sums_[parameter] = true;
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
  const bool copies = rounds || shards_ != nullptr || !communicator_.sums_without_copies();
  if (communicator_.world_size() == 1 || copies) return false;
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

bool GradientReducer::are_zero(at::TensorList parameters) const {
  // Autograd adds to the gradients of fp32 parameters by itself, and a caller to all of them.
  if (source_ == GradientSource::kCaller) return false;
  return std::ranges::all_of(parameters, [&](const at::Tensor& parameter) {
    return is_short(parameter) && !has_sums_[index_of(parameter)];
  });
}

void GradientReducer::added(at::TensorList parameters) {
  const size_t first = index_of(parameters.front());
  for (size_t index = first + parameters.size(); index-- > first;) {
    has_sums_[index] = true;
    arrived(index);
  }
}

void GradientReducer::start_next_bucket() {
  const RecordedCall recorded(RecordedCall::kGradientsStart);
  Bucket& bucket = buckets_[started_++];
  copy_small(bucket);
  if (!bucket.wire.is_same(bucket.view)) bucket.wire.copy_(bucket.view);
  bucket.sum = start_sum(bucket);
  bucket.elsewhere.clear();
}

std::unique_ptr<CollectiveWork> GradientReducer::start_sum(Bucket& bucket) {
  if (factor_) return communicator_.start_sums(summands_of(bucket));
  if (shards_ != nullptr) return communicator_.start_reduce_scatter(bucket.wire);
  return communicator_.start_all_reduce(bucket.wire);
}

void GradientReducer::take_rounded(const Bucket& bucket) const {
  if (bucket.wire.is_same(bucket.view)) return;
  const Part all = {0, bucket.view.numel()};
  const Part part =
      shards_ == nullptr ? all : part_of(all.size, communicator_.rank(), communicator_.world_size());
  bucket.view.narrow(0, part.begin, part.size).copy_(bucket.wire.narrow(0, part.begin, part.size));
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
  has_sums_.assign(parameters_.size(), false);
  if (communicator_.world_size() == 1) return;
  exposed_.begin();
  while (started_ < buckets_.size()) start_next_bucket();
  const Activity::Waiting waiting(shards_ == nullptr ? "the gradients' all-reduce"
                                                     : "the gradients' reduce-scatter");
  const RecordedCall recorded(RecordedCall::kGradientsWait);
  for (Bucket& bucket : buckets_) {
    bucket.sum->wait();
    bucket.sum.reset();
    take_rounded(bucket);
  }
  started_ = 0;
  exposed_.end();
}

void GradientReducer::abandon() {
  communicates_ = false;
  has_sums_.assign(parameters_.size(), false);
  started_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.sum.reset();
    bucket.elsewhere.clear();
  }
  if (shards_ != nullptr) shards_->abandon();
}

double GradientReducer::exposed_seconds() const {
  return exposed_.seconds() + (shards_ == nullptr ? 0 : shards_->exposed_seconds());
}

double GradientReducer::take_mean_exposed_seconds() {
  return exposed_.take_mean_seconds() + (shards_ == nullptr ? 0 : shards_->take_mean_exposed_seconds());
}

void GradientReducer::zero() {
  flat_.zero_();
  has_sums_.assign(parameters_.size(), false);
}

}  // namespace adtrain

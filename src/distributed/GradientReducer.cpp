#include "distributed/GradientReducer.h"

#include <stdexcept>
#include <utility>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/Clock.h"

namespace adtrain {

/// Autograd calls it when a parameter's gradient has been accumulated.
class GradientReducer::ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(GradientReducer& reducer, size_t bucket) : reducer_(reducer), bucket_(bucket) {}
  void operator()(const at::Tensor&) override { reducer_.gradient_ready(bucket_); }

 private:
  GradientReducer& reducer_;
  size_t bucket_;
};

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, Communicator& communicator,
                                 ReducerOptions options)
    : parameters_(std::move(parameters)), communicator_(communicator) {
  make_views();
  make_buckets(options);
  if (communicator_.world_size() > 1) listen();
}

GradientReducer::~GradientReducer() {
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void GradientReducer::make_views() {
  if (parameters_.empty()) throw std::invalid_argument("A gradient reducer needs at least one parameter.");
  int64_t elements = 0;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.scalar_type() != at::kFloat || !parameter.is_leaf() || !parameter.requires_grad()) {
      throw std::invalid_argument("A gradient reducer takes float32 leaves that require gradients.");
    }
    elements += parameter.numel();
  }
  flat_ = at::zeros({elements}, parameters_.front().options().requires_grad(false));
  int64_t offset = 0;
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = flat_.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
  }
}

void GradientReducer::make_buckets(ReducerOptions options) {
  bucket_of_.resize(parameters_.size());
  int64_t begin = flat_.numel();  // of the parameters from `index` on
  int64_t end = begin;            // of the bucket being filled
  int64_t in_bucket = 0;
  for (size_t index = parameters_.size(); index-- > 0;) {
    begin -= parameters_[index].numel();
    bucket_of_[index] = buckets_.size();
    ++in_bucket;
    const int64_t limit = buckets_.empty() ? options.first_bucket_bytes : options.bucket_bytes;
    if ((end - begin) * static_cast<int64_t>(sizeof(float)) >= limit || index == 0) {
      buckets_.push_back(
          {.view = flat_.narrow(0, begin, end - begin), .parameters = in_bucket, .sum = nullptr});
      end = begin;
      in_bucket = 0;
    }
  }
}

void GradientReducer::listen() {
  for (size_t index = 0; index < parameters_.size(); ++index) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[index],
                                                   std::make_unique<ReadyHook>(*this, bucket_of_[index]));
  }
}

void GradientReducer::begin_micro_step(bool communicates) {
  communicates_ = communicates;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
}

void GradientReducer::gradient_ready(size_t bucket) {
  if (!communicates_) return;
  if (bucket < started_) {
    throw std::logic_error(
        "A gradient came after its bucket was sent: there is to be one backward pass between "
        "begin_micro_step(true) and finish().");
  }
  --buckets_[bucket].missing;
  while (started_ < buckets_.size() && buckets_[started_].missing == 0) start_next_bucket();
  communicator_.progress();
}

void GradientReducer::start_next_bucket() {
  Bucket& bucket = buckets_[started_++];
  bucket.sum = communicator_.start_all_reduce(bucket.view);
}

void GradientReducer::finish() {
  if (communicator_.world_size() == 1) return;
  const Stopwatch watch;
  while (started_ < buckets_.size()) start_next_bucket();
  for (Bucket& bucket : buckets_) {
    bucket.sum->wait();
    bucket.sum.reset();
  }
  started_ = 0;
  communicates_ = false;
  seconds_waited_ += watch.seconds();
}

void GradientReducer::zero() {
  flat_.zero_();
}

double GradientReducer::take_seconds_waited() {
  return std::exchange(seconds_waited_, 0);
}

}  // namespace adtrain

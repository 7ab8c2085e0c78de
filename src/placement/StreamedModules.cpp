#include "placement/StreamedModules.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace adtrain {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).unwrap();
}

FlatLayout bytes_of(const std::vector<at::Tensor>& parameters) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& parameter : parameters) sizes.push_back(static_cast<int64_t>(parameter.nbytes()));
  return FlatLayout(sizes);
}

/// Parameter number `i` of a module in memory with this layout.
at::Tensor view_in(const at::Tensor& values, const FlatLayout& layout, size_t i,
                   const at::Tensor& parameter) {
  return values.narrow(0, layout.offset(i), static_cast<int64_t>(parameter.nbytes()))
      .view(parameter.scalar_type())
      .view(parameter.sizes());
}

}  // namespace

StreamedModules::StreamedModules(const std::vector<std::vector<at::Tensor>>& modules, at::Device device,
                                 int64_t buffers)
    : device_(device) {
  const at::NoGradGuard no_grad;
  int64_t largest = 0;
  for (const std::vector<at::Tensor>& parameters : modules) {
    Module module{parameters, bytes_of(parameters), {}};
    module.values = at::zeros({module.layout.total()}, at::kByte);
    for (size_t i = 0; i < parameters.size(); ++i)
      view_in(module.values, module.layout, i, parameters[i]).copy_(parameters[i]);
    if (device.is_cuda()) module.values = module.values.pin_memory();
    largest = std::max(largest, module.layout.total());
    modules_.push_back(std::move(module));
  }
  const at::TensorOptions options = at::TensorOptions(at::kByte).device(device);
  for (int64_t i = 0; i < buffers; ++i) {
    Buffer& buffer = buffers_.emplace_back();
    buffer.values = at::empty({largest}, options);
    if (device.is_cuda()) buffer.arrived.emplace(device.type());
  }
  if (!device.is_cuda()) return;
  copies_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index()).unwrap();
  computed_.emplace(device.type());
}

void StreamedModules::bring(size_t module) {
  const at::NoGradGuard no_grad;
  if (copies_) computed_->record(current_stream(device_));
  if (fetched_ != module) fetch(module);
  const Module& wanted = modules_[module];
  const Buffer& buffer = buffers_[wanted.buffer];
  if (copies_) buffer.arrived->block(current_stream(device_));
  for (size_t i = 0; i < wanted.parameters.size(); ++i) {
    at::Tensor parameter = wanted.parameters[i];
    parameter.set_data(view_in(buffer.values, wanted.layout, i, parameter));
  }
  if (buffers_.size() > 1) fetch((module + 1) % modules_.size());
}

void StreamedModules::fetch(size_t module) {
  Module& wanted = modules_[module];
  wanted.buffer = next_buffer_;
  next_buffer_ = (next_buffer_ + 1) % buffers_.size();
  Buffer& buffer = buffers_[wanted.buffer];
  const at::Tensor there = buffer.values.narrow(0, 0, wanted.values.numel());
  fetched_ = module;
  if (!copies_) {
    there.copy_(wanted.values);
    return;
  }
  const c10::StreamGuard guard(*copies_);
  computed_->block(*copies_);
  there.copy_(wanted.values, /*non_blocking=*/true);
  buffer.arrived->record(*copies_);
}

}  // namespace adtrain

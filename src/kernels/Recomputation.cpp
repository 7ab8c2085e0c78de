#include "kernels/Recomputation.h"

#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/DropoutDraw.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

at::Tensor state_of_generator(const at::Device& device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state_of_generator(const at::Device& device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

/// While it lives, the default generator of a device stands where it stood before.
class GeneratorRewound {
 public:
  /// `to`: undefined where it is to stay.
  GeneratorRewound(const at::Device& device, const at::Tensor& to) : device_(device) {
    if (!to.defined()) return;
    now_ = state_of_generator(device_);
    set_state_of_generator(device_, to);
  }
  ~GeneratorRewound() {
    if (now_.defined()) set_state_of_generator(device_, now_);
  }
  GeneratorRewound(const GeneratorRewound&) = delete;
  GeneratorRewound& operator=(const GeneratorRewound&) = delete;

 private:
  at::Device device_;
  at::Tensor now_;
};

struct Remembered : torch::CustomClassHolder {
  explicit Remembered(const RecomputedPart& of_call) : part(of_call) {}

  RecomputedPart part;
  DropoutStream dropout;  ///< as it was before the part ran
  at::Tensor generator;   ///< its state before the part ran; undefined where the part does not read it
};

class Recomputed : public autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters, RandomNumbers numbers, const RecomputedPart& part) {
    auto own = c10::make_intrusive<Remembered>(part);
    if (numbers == RandomNumbers::kGenerator) own->generator = state_of_generator(x.device());
    const at::Tensor y = without_graph(x, part, own->dropout);
    autograd::variable_list inputs = {x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(inputs));
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    autograd::variable_list inputs = context->get_saved_variables();
    inputs[0] = inputs[0].detach().requires_grad_();
    const at::Tensor y = run_again(*taken_from<Remembered>(context), inputs[0]);
    autograd::variable_list trained;  // frozen parameters have no gradients
    for (const at::Tensor& input : inputs) {
      if (input.requires_grad()) trained.push_back(input);
    }
    // The parameters' gradients leave through this function's own edges: what waits for them waits for these.
    const autograd::variable_list found = autograd::grad({y}, trained, {gradients[0]}, /*retain_graph=*/false,
                                                         /*create_graph=*/false, /*allow_unused=*/true);
    autograd::variable_list result(inputs.size() + 2);  // numbers and part get no gradients
    for (size_t index = 0, next = 0; index < inputs.size(); ++index) {
      if (inputs[index].requires_grad()) result[index] = found[next++];
    }
    return result;
  }

 private:
  /// Autograd records and forgets: some operators choose by it how they compute, and both runs must choose
  /// the same.
  static at::Tensor without_graph(const at::Tensor& x, const RecomputedPart& part, DropoutStream& before) {
    const at::AutoGradMode recording(true);
    DropoutStream own;  // where the thread has none, so that there is one to repeat
    DropoutStream& stream = DropoutScope::stream() != nullptr ? *DropoutScope::stream() : own;
    const DropoutScope scope(stream);
    const uint64_t first = stream.next;
    at::Tensor y = part(x.detach().requires_grad_(), PartRun::kForValues).detach();
    before = stream;
    before.next = first;
    return y;
  }
  static at::Tensor run_again(const Remembered& own, const at::Tensor& x) {
    const at::AutoGradMode recording(true);
    const GeneratorRewound rewound(x.device(), own.generator);
    DropoutStream again = own.dropout;
    const DropoutScope scope(again);
    return own.part(x, PartRun::kForGradients);
  }
};

}  // namespace

at::Tensor recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters, RandomNumbers numbers,
                      const RecomputedPart& part) {
  if (!at::GradMode::is_enabled()) return part(x, PartRun::kForValues);
  return Recomputed::apply(x, at::TensorList(parameters), numbers, part);
}

}  // namespace adtrain::kernels

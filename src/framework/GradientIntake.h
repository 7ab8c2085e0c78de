#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "distributed/GradientReducer.h"

namespace adtrain {

/// Takes autograd's gradients into a reducer's flat buffer by one operation each: the first gradient of a
/// step is copied to its place, later ones are added, and each is multiplied by `factor` on its way. So
/// nothing is set to zero before a step but the places that no gradient came for, and nothing is divided
/// after it.
///
/// During a backward pass a parameter has no `.grad`, so that autograd hands over the tensor that it has
/// computed instead of adding it somewhere. As soon as it is taken, `.grad` is the place in the buffer.
///
///     for each micro-step: intake.begin_micro_step(last); loss.backward();   // one backward pass each
///     intake.finish();
///
/// For one thread, which also runs the backward pass. Everything is ordered on the current stream.
class GradientIntake {
 public:
  /// `parameters` are those of the reducer, which leaves gradients to its caller. `mains`, by parameter: the
  /// tensors whose `.grad` is the place; for a 16-bit parameter its fp32 copy, else the parameter itself.
  GradientIntake(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& mains,
                 GradientReducer& reducer, double factor);
  /// Removes the hooks. Gradients stay where they are.
  ~GradientIntake();
  GradientIntake(const GradientIntake&) = delete;
  GradientIntake& operator=(const GradientIntake&) = delete;

  /// As the reducer's. The first call of a step forgets the gradients of the step before. Throws
  /// std::logic_error where a `.grad` that came in the micro-step before is no longer its place in the
  /// buffer.
  void begin_micro_step(bool last);
  /// Sets to zero what no gradient came for, and finishes the reducer's sums. Throws as begin_micro_step does
  /// and as the reducer does.
  void finish();

 private:
  class Hook;
  struct Place {
    at::Tensor parameter;
    at::Tensor main;
    at::Tensor view;        ///< of the flat gradient, like the parameter
    bool is_taken = false;  ///< a gradient came in this step
    bool has_come = false;  ///< in this micro-step
  };

  void gradient_came(size_t parameter);
  void take(const Place& place, const at::Tensor& gradient) const;
  void check_attached() const;

  GradientReducer& reducer_;
  double factor_;
  at::Tensor number_;  ///< the factor, without a say in what type a product has
  at::Tensor fp32_;    ///< the factor as fp32 (1) on the device, where products of 16-bit gradients are fp32
  std::vector<Place> places_;
  bool in_step_ = false;
};

}  // namespace adtrain

#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/GradientReducer.h"

namespace adtrain {

/// Moves autograd's gradients into a reducer's flat buffer by one operation each: the first gradient of a
/// step is copied to its place, later ones are added, and each is multiplied by `factor` at the same time. So
/// only places without a gradient are set to zero, and nothing is divided after a step. Where the sums over
/// ranks can multiply, a large gradient that is a step's only one is not even copied, and such small ones are
/// copied together.
///
/// During a backward pass a parameter has no `.grad`, so that autograd passes the tensor that it has computed
/// instead of accumulating it. Once that is taken, `.grad` is the place in the buffer.
///
///     for each micro-step: intake.begin_micro_step(last); loss.backward();   // one backward pass each
///     intake.finish();
///
/// For one thread, which also runs the backward pass. Everything is ordered on the current stream.
class GradientIntake {
 public:
  /// `parameters` are those of the reducer, which must use GradientSource::kCaller. `mains` holds for each
  /// parameter the tensor whose `.grad` is the place: for a 16-bit parameter its fp32 copy, else the
  /// parameter itself.
  GradientIntake(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& mains,
                 GradientReducer& reducer, double factor);
  /// Removes the hooks. Gradients stay where they are.
  ~GradientIntake();
  GradientIntake(const GradientIntake&) = delete;
  GradientIntake& operator=(const GradientIntake&) = delete;

  /// Like the reducer's. The first call of a step discards the previous step's gradients. Throws
  /// std::logic_error where a `.grad` taken in the previous micro-step is no longer its place in the buffer.
  void begin_micro_step(bool last);
  /// Sets places without a gradient to zero, and finishes the reducer's sums. Throws as begin_micro_step and
  /// the reducer do.
  void finish();

 private:
  class Hook;
  struct Place {
    at::Tensor parameter;
    at::Tensor main;
    at::Tensor view;        ///< of the flat gradient, like the parameter
    bool is_taken = false;  ///< a gradient arrived in this step
    bool has_come = false;  ///< a gradient arrived in this micro-step
  };

  void gradient_came(size_t parameter);
  void take(const Place& place, const at::Tensor& gradient) const;
  /// Whether the sum over ranks can read the gradient where autograd has left it.
  bool can_stay(size_t parameter, const at::Tensor& gradient) const;
  void check_attached() const;

  GradientReducer& reducer_;
  bool sums_multiply_;
  double factor_;      ///< 1 where the sums over ranks multiply
  at::Tensor number_;  ///< the factor as a wrapped number, which does not affect a product's type
  /// the factor as fp32 (1) on the device, so that products with 16-bit gradients are fp32
  at::Tensor fp32_;
  std::vector<Place> places_;
  bool in_step_ = false;
};

}  // namespace adtrain

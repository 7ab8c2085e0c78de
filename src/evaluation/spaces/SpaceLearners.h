#pragma once

#include <functional>
#include <memory>
#include <span>

#include "environments/TaskSpaces.h"
#include "environments/worker/WorkerBatch.h"
#include "environments/worker/WorkerHello.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Learners.h"
#include "evaluation/Trial.h"
#include "evaluation/spaces/SpaceChooser.h"
#include "evaluation/spaces/SpaceContext.h"

namespace adtrain {

/// Learners in a worker's environments of any space.
class SpaceLearners final : public Learners {
 public:
  /// What they are, beside their environments.
  struct Terms {
    TaskSpaces trained;  ///< of the network, which the environments' fit
    SpaceScale scale;
    int64_t window;          ///< steps that the network sees
    RollingPredictors kept;  ///< how keys and values are kept
  };
  /// Takes a batch that has been reset, whose environments have the trials in order; `hello` is its pool's.
  SpaceLearners(std::unique_ptr<WorkerBatch> batch, const WorkerHello& hello, std::span<const Trial> trials,
                const Terms& terms, const EvaluationOptions& options);

  void act(const Predictor& predict) override;
  void observe() override;
  std::span<const double> rewards() const override { return batch_->rewards(); }
  std::span<const uint8_t> ended() const override { return batch_->ended(); }

 private:
  void look(const at::Tensor& begins);

  std::unique_ptr<WorkerBatch> batch_;
  Space observation_, action_;  ///< the environments' own
  TaskSpaces trained_;
  SpaceContext context_;
  SpaceChooser chooser_;
  Predictor rolling_;      ///< where keys and values are kept; null where whole windows are shown
  int64_t growing_steps_;  ///< that rolling_ is for yet, where rows do not slide
  bool slides_;
};

/// Uniformly random actions in a worker's environments of any space: nobody learns.
class RandomActions final : public Learners {
 public:
  RandomActions(std::unique_ptr<WorkerBatch> batch, const WorkerHello& hello, std::span<const Trial> trials,
                const EvaluationOptions& options);

  void act(const Predictor& predict) override;
  void observe() override { batch_->finish_step(); }
  std::span<const double> rewards() const override { return batch_->rewards(); }
  std::span<const uint8_t> ended() const override { return batch_->ended(); }

 private:
  std::unique_ptr<WorkerBatch> batch_;
  Space action_;
  SpaceChooser chooser_;
};

}  // namespace adtrain

#include "evaluation/spaces/SpaceLearners.h"

#include <utility>

#include <ATen/ATen.h>

#include "evaluation/spaces/SpaceRows.h"

namespace adtrain {
namespace {

/// Writes actions, float64 (n, size), to where the batch's next step takes them from. A box of whole numbers
/// takes the nearest ones within its bounds: others may not be numbers of its type.
void put_actions(const at::Tensor& actions, WorkerBatch& batch, const Space& space) {
  const at::Tensor rows = rows_of(batch.actions(), space, batch.size());
  at::Tensor played = actions;
  if (space.kind == Space::Kind::kBox && is_whole(space.type)) {
    const auto bounds = [](const std::vector<double>& each) { return at::tensor(each, at::kDouble); };
    played = actions.round().maximum(bounds(space.low)).minimum(bounds(space.high));
  }
  rows.copy_(played.reshape(rows.sizes()));
}

}  // namespace

SpaceLearners::SpaceLearners(std::unique_ptr<WorkerBatch> batch, const WorkerHello& hello,
                             std::span<const Trial> trials, const Terms& terms,
                             const EvaluationOptions& options)
    : batch_(std::move(batch)),
      observation_(hello.observation),
      action_(hello.action),
      trained_(terms.trained),
      context_(batch_->size(), terms.window, terms.trained, terms.scale),
      chooser_(hello.action, options.eval_sampling, static_cast<uint64_t>(options.eval_seed), trials),
      rolling_(terms.kept ? terms.kept.begin() : nullptr),
      growing_steps_(terms.window),
      slides_(terms.kept.slides) {
  look(at::ones({batch_->size()}, at::kByte));
}

void SpaceLearners::look(const at::Tensor& begins) {
  const at::Tensor observed = rows_of(batch_->observations(), observation_, batch_->size());
  context_.observe(as_trained(observed, trained_), begins);
}

void SpaceLearners::act(const Predictor& predict) {
  const auto predicted = rolling_ ? rolling_(context_.newest()) : predict(context_.batch());
  if (!slides_ && --growing_steps_ == 0) rolling_ = nullptr;  // all tokens get other positions from now on
  put_actions(chooser_.choose(predicted.actions), *batch_, action_);
  batch_->begin_step();
}

void SpaceLearners::observe() {
  // The batch may have clipped the actions: what was played is what histories hold, too.
  const at::Tensor played = rows_of(batch_->actions(), action_, batch_->size()).clone();
  batch_->finish_step();
  context_.complete(played,
                    at::from_blob(const_cast<double*>(rewards().data()), {batch_->size()}, at::kDouble));
  look(at::from_blob(const_cast<uint8_t*>(ended().data()), {batch_->size()}, at::kByte));
}

RandomActions::RandomActions(std::unique_ptr<WorkerBatch> batch, const WorkerHello& hello,
                             std::span<const Trial> trials, const EvaluationOptions& options)
    : batch_(std::move(batch)),
      action_(hello.action),
      chooser_(hello.action, Sampling::kSample, static_cast<uint64_t>(options.eval_seed), trials) {}

void RandomActions::act(const Predictor&) {
  put_actions(chooser_.draw_uniformly(), *batch_, action_);
  batch_->begin_step();
}

}  // namespace adtrain

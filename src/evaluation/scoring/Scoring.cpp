#include "evaluation/scoring/Scoring.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/InParallel.h"
#include "base/Text.h"
#include "collectives/Agreement.h"
#include "collectives/LongWork.h"

namespace adtrain {
namespace {

std::vector<ActionScorer> scorers_of(const AlgorithmDistillation& model) {
  const size_t groups = std::max<size_t>(1, model.shape().spaces.size());
  std::vector<ActionScorer> scorers;
  for (size_t group = 0; group < groups; ++group) scorers.emplace_back(model.options(), model.shape(), group);
  return scorers;
}

/// Wide enough for every group.
ScoreTable::Layout layout_of(const std::vector<ActionScorer>& scorers) {
  ScoreTable::Layout layout;
  for (const ActionScorer& scorer : scorers) {
    layout.elements = std::max(layout.elements, scorer.elements());
    layout.real = layout.real || scorer.is_real();
  }
  return layout;
}

/// In this thread, and in those that begin after it. A thread asks its own setting.
void compute_by_one_thread() {
  if (at::get_num_threads() != 1) at::set_num_threads(1);
}

}  // namespace

Scoring::Scoring(AlgorithmDistillation& model, const ScoredWindows& windows, const SampleBatches& batches,
                 PlacedNetwork* placed)
    : model_(model),
      windows_(windows),
      batches_(batches),
      placed_(placed),
      scorers_(scorers_of(model)),
      layout_(layout_of(scorers_)) {
  model_.plan(LossPositions::kLast);  // chosen now, several threads may read it
}

std::string Scoring::loss_names() const {
  std::vector<std::string> names;
  for (const ActionScorer& scorer : scorers_) {
    if (std::ranges::find(names, scorer.loss_name()) == names.end()) names.emplace_back(scorer.loss_name());
  }
  return join(names, ", ");
}

std::vector<Scoring::Rows> Scoring::assembled(const std::vector<int64_t>& windows, int64_t rows) const {
  std::map<size_t, Rows> by_group;
  for (size_t place = 0; place < windows.size(); ++place)
    by_group[windows_.place(windows[place]).group].places.push_back(place);
  std::vector<Rows> parts;
  for (auto& [group, part] : by_group) {
    part.group = group;
    std::vector<int64_t> of_group;
    for (const size_t place : part.places) of_group.push_back(windows[place]);
    of_group.resize(static_cast<size_t>(rows), of_group.back());
    part.batch = windows_.assemble(of_group);
    parts.push_back(std::move(part));
  }
  return parts;
}

void Scoring::predict(std::vector<Rows>& parts) const {
  if (placed_ != nullptr) {
    std::vector<PendingPredictions> pending = submitted(parts);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].predictions = pending[i].get().actions;
    return;
  }
  const at::Device device = model_.parameters().flat().device();
  for (Rows& part : parts) part.predictions = model_.predict(part.batch.to(device)).actions;
}

ScoreTable Scoring::scored(const std::vector<int64_t>& windows, const std::vector<Rows>& parts) const {
  std::vector<ActionScore> scores(windows.size());
  std::vector<std::vector<double>> actions(windows.size());
  for (const Rows& part : parts) {
    const at::Tensor predictions = part.predictions.to(at::kCPU, at::kFloat).contiguous();
    const at::Tensor taken = taken_actions(part.batch);
    const auto width = static_cast<size_t>(predictions.size(1)),
               elements = static_cast<size_t>(taken.size(1));
    for (size_t row = 0; row < part.places.size(); ++row) {
      const size_t place = part.places[row];
      const double* const action = taken.const_data_ptr<double>() + row * elements;
      actions[place].assign(action, action + elements);
      scores[place] =
          scorers_[part.group]({predictions.const_data_ptr<float>() + row * width, width}, actions[place]);
    }
  }
  ScoreTable table(layout_);
  for (size_t row = 0; row < windows.size(); ++row) {
    const ScoredWindows::Place place = windows_.place(windows[row]);
    table.append({windows[row], place.task, place.stream, place.position, actions[row], scores[row]});
  }
  return table;
}

ScoreTable Scoring::score(int64_t batch) const {
  const std::vector<int64_t> windows = batches_.windows_of(batch);
  std::vector<Rows> parts = assembled(windows, batches_.rows());
  predict(parts);
  return scored(windows, parts);
}

void Scoring::try_batch(int64_t rows) const {
  std::vector<Rows> parts = assembled({0}, rows);
  predict(parts);
  scored({0}, parts);
}

std::vector<ScoreTable> Scoring::on_cpu(const NumberSpan& batches, int64_t threads,
                                        std::atomic<int64_t>& done, const std::atomic<bool>& stopping) const {
  const int64_t at_once = model_.options().is_plugin() ? 1 : threads;
  std::vector<ScoreTable> tables(static_cast<size_t>(batches.size()), ScoreTable(layout_));
  in_parallel(tables.size(), static_cast<size_t>(at_once), [&](size_t i) {
    if (stopping) return;
    compute_by_one_thread();
    tables[i] = score(batches.first + static_cast<int64_t>(i));
    done += tables[i].size();
  });
  return tables;
}

std::vector<ScoreTable> Scoring::on_gpu(const NumberSpan& batches, std::atomic<int64_t>& done,
                                        const std::atomic<bool>& stopping) const {
  std::vector<ScoreTable> tables;
  std::vector<int64_t> windows_before;
  std::vector<Rows> before;
  const auto finish = [&] {
    if (before.empty()) return;
    tables.push_back(scored(windows_before, before));
    done += tables.back().size();
  };
  for (int64_t batch = batches.first; batch < batches.end && !stopping; ++batch) {
    std::vector<int64_t> windows = batches_.windows_of(batch);
    std::vector<Rows> parts = assembled(windows, batches_.rows());
    finish();
    predict(parts);
    before = std::move(parts);
    windows_before = std::move(windows);
  }
  finish();
  return tables;
}

std::vector<PendingPredictions> Scoring::submitted(const std::vector<Rows>& parts) const {
  std::vector<PendingPredictions> pending;
  for (const Rows& part : parts) pending.push_back(placed_->submit(part.batch));
  return pending;
}

std::vector<ScoreTable> Scoring::on_map(const NumberSpan& batches, std::atomic<int64_t>& done,
                                        const std::atomic<bool>& stopping) const {
  struct OnTheWay {
    std::vector<int64_t> windows;
    std::vector<Rows> parts;
    std::vector<PendingPredictions> pending;
  };
  std::deque<OnTheWay> on_the_way;
  std::vector<ScoreTable> tables;
  const auto finish_until = [&](int64_t left) {
    for (; std::ssize(on_the_way) > left; on_the_way.pop_front()) {
      OnTheWay& first = on_the_way.front();
      for (size_t i = 0; i < first.parts.size(); ++i)
        first.parts[i].predictions = first.pending[i].get().actions;
      tables.push_back(scored(first.windows, first.parts));
      done += tables.back().size();
    }
  };
  for (int64_t batch = batches.first; batch < batches.end && !stopping; ++batch) {
    OnTheWay next;
    next.windows = batches_.windows_of(batch);
    next.parts = assembled(next.windows, batches_.rows());
    next.pending = submitted(next.parts);
    on_the_way.push_back(std::move(next));
    finish_until(placed_->stages() + 1);
  }
  finish_until(0);
  return tables;
}

std::optional<ScoreTable> Scoring::run(const NumberSpan& batches, Communicator& communicator, int64_t threads,
                                       const Progress& progress, const std::function<bool()>& stop) const {
  const NumberSpan mine = batches.part(communicator.rank(), communicator.world_size());
  const at::Device device = model_.parameters().flat().device();
  std::optional<c10::Stream> stream;  // the calling thread's
  if (device.is_cuda()) stream = c10::cuda::getCurrentCUDAStream(device.index()).unwrap();
  std::vector<ScoreTable> tables;
  LongWork work(communicator, progress);
  work.may_stop(stop);
  work.run(batches_.samples_in(mine).size(), [&](std::atomic<int64_t>& done) {
    if (placed_ != nullptr) {
      tables = on_map(mine, done, work.stopping());
    } else if (stream) {
      const c10::StreamGuard guard(*stream);
      tables = on_gpu(mine, done, work.stopping());
    } else {
      tables = on_cpu(mine, threads, done, work.stopping());
    }
  });
  if (work.stopping()) return std::nullopt;
  return gathered(tables, batches, communicator);
}

ScoreTable Scoring::gathered(const std::vector<ScoreTable>& mine, const NumberSpan& batches,
                             Communicator& communicator) const {
  std::string own;
  for (const ScoreTable& table : mine) own += table.bytes();
  // Texts are exchanged in pieces, each padded to the longest: of so many rows at most.
  constexpr size_t kRowsAtOnce = 65536;
  const size_t piece = kRowsAtOnce * layout_.row_bytes();
  size_t pieces = 0;
  const int64_t world = communicator.world_size();
  for (int64_t rank = 0; rank < world; ++rank) {
    const int64_t rows = batches_.samples_in(batches.part(rank, world)).size();
    pieces = std::max(pieces, (static_cast<size_t>(rows) + kRowsAtOnce - 1) / kRowsAtOnce);
  }
  std::vector<std::string> all(static_cast<size_t>(world));
  for (size_t i = 0; i < pieces; ++i) {
    const std::vector<std::string> texts =
        gather_texts(communicator, own.substr(std::min(i * piece, own.size()), piece));
    for (size_t rank = 0; communicator.is_root() && rank < all.size(); ++rank) all[rank] += texts[rank];
  }
  return {layout_, join(all, "")};
}

}  // namespace adtrain

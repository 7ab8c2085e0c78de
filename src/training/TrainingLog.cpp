#include "training/TrainingLog.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/WriteRemedy.h"
#include "memory/MemoryMeter.h"
#include "telemetry/Chart.h"
#include "telemetry/MetricsFile.h"

namespace adtrain {
namespace {

/// "WORDS 56.7%"; empty where there is no accuracy.
std::string accuracy_text(const std::string& words, const LossFigures& figures) {
  return figures.accuracy ? fmt::format("{} {:.1f}%", words, 100 * *figures.accuracy) : "";
}

}  // namespace

TrainingLog::TrainingLog(Console& console, std::optional<Paths> paths, Hyperparameters given)
    : console_(console), paths_(std::move(paths)), given_(std::move(given)) {}

void TrainingLog::begin(int64_t first_step, int64_t first_sequences, int64_t last_step) {
  reported_step_ = first_step;
  reported_sequences_ = first_sequences;
  since_report_.restart();
  if (!paths_) return;
  try {
    metrics_ = std::make_unique<MetricsLog>(paths_->metrics, first_step + 1);
    tensorboard_ =
        std::make_unique<TensorBoardWriter>(paths_->tensorboard, first_step > 0 ? first_step + 1 : 0);
  } catch (const std::filesystem::filesystem_error& error) {
    throw EnvironmentError(fmt::format("{}; the run's figures are written there: {}", error.what(),
                                       write_remedy(error, paths_->metrics.parent_path())));
  }
  const std::string name = paths_->metrics.parent_path().filename().string();
  if (!given_.empty()) tensorboard_->hyperparameters(given_, name);
  prometheus_ = std::make_unique<PrometheusFile>(
      std::filesystem::path(paths_->metrics).replace_extension(".prom"), name);
  read_back_curve();
  progress_ = std::make_unique<Progress>(console_, "training", last_step, "steps", first_step);
}

void TrainingLog::lines(const std::string& text) {
  std::istringstream rest(text);
  for (std::string line; std::getline(rest, line);) console_.info(line);
}

void TrainingLog::trained(const TrainingFigures& figures) {
  if (!paths_) return;
  const double seconds = since_report_.seconds();
  const auto steps = static_cast<double>(figures.step - reported_step_);
  const double steps_a_second = steps / seconds;
  const double sequences_a_second = static_cast<double>(figures.sequences - reported_sequences_) / seconds;
  std::vector<std::pair<const char*, double>> scalars = {{"loss", figures.loss.loss}};
  if (figures.loss.accuracy) scalars.emplace_back("accuracy", *figures.loss.accuracy);
  const std::pair<const char*, double> others[] = {
      {"learning_rate", figures.learning_rate},
      {"gradient_norm", figures.gradient_norm},
      {"steps_per_second", steps_a_second},
      {"sequences_per_second", sequences_a_second},
      {"data_wait_share", figures.data_wait_seconds / seconds},
      {"exposed_communication_share", figures.exposed_communication_seconds * steps_a_second}};
  scalars.insert(scalars.end(), std::begin(others), std::end(others));

  nlohmann::ordered_json record = {
      {"step", figures.step}, {"time", unix_seconds()}, {"sequences", figures.sequences}};
  for (const auto& [name, value] : scalars) {
    record[name] = value;
    tensorboard_->scalar(fmt::format("train/{}", name), figures.step, value);
    prometheus_->set(name, value);
  }
  if (figures.skipped_steps) record["skipped_steps"] = *figures.skipped_steps;
  for (const SlowRank& slow : figures.slow_ranks) {
    record["slow_ranks"].push_back(
        {{"rank", slow.rank}, {"lost_share", slow.lost_share}, {"cause", name_of(slow.cause)}});
  }
  const std::string memory = record_memory(figures, record);
  memory_ = figures.memory;
  metrics_->record(record);
  tensorboard_->flush();
  write_prometheus(figures.step);
  warn_of_lost_figures();
  if (std::isfinite(figures.loss.loss)) training_loss_.push_back({figures.step, figures.loss.loss});
  // What a narrow terminal should still show comes first.
  rate_text_ = fmt::format("loss {:.4f}  {:.1f} steps/s  {:.0f} seq/s{}", figures.loss.loss, steps_a_second,
                           sequences_a_second, accuracy_text("  accuracy", figures.loss));
  rest_text_ = fmt::format("  lr {:.2e}{}", figures.learning_rate, memory);
  show_progress(figures.step);
  reported_step_ = figures.step;
  reported_sequences_ = figures.sequences;
  since_report_.restart();
}

std::string TrainingLog::record_memory(const TrainingFigures& figures, nlohmann::ordered_json& record) {
  if (figures.memory.empty()) return "";
  int64_t largest = 0, taken = 0;
  for (const auto& [name, field] :
       {std::pair{"start_memory", &RankMemory::start}, std::pair{"peak_memory", &RankMemory::peak},
        std::pair{"current_memory", &RankMemory::current}}) {
    int64_t total = 0;
    nlohmann::ordered_json by_rank = nlohmann::ordered_json::array();
    for (const RankMemory& rank : figures.memory) {
      prometheus_->set(fmt::format("{}_bytes", name), static_cast<double>(rank.*field),
                       {{"rank", std::to_string(by_rank.size())}});
      by_rank.push_back(rank.*field);
      total += rank.*field;
    }
    record[name] = std::move(by_rank);
    tensorboard_->scalar(fmt::format("memory/{}_gb", name), figures.step, in_gigabytes(total));
  }
  nlohmann::ordered_json& parts = record["memory_parts"];
  for (const auto& [name, bytes] : kMemoryParts) {
    int64_t total = 0;
    for (const RankMemory& rank : figures.memory) {
      parts[name].push_back(rank.split.*bytes);
      total += rank.split.*bytes;
    }
    tensorboard_->scalar(fmt::format("memory/{}_gb", name), figures.step, in_gigabytes(total));
  }
  for (const RankMemory& rank : figures.memory) {
    largest = std::max(largest, rank.peak);
    taken = std::max(taken, rank.peak - rank.start);
  }
  record["memory_per_sample"] = taken / figures.micro_batch;
  return fmt::format("  {:.1f} GB", in_gigabytes(largest));
}

void TrainingLog::tell_memory() const {
  if (memory_.empty()) return;
  const auto most = std::ranges::max_element(memory_, {}, &RankMemory::current);
  console_.info(fmt::format("memory of rank {}{}: {} ({})", most - memory_.begin(),
                            memory_.size() > 1 ? ", which has the most in use" : "", gigabytes(most->current),
                            text_of(most->split)));
}

void TrainingLog::held_out(int64_t step, const LossFigures& figures) {
  step_of_held_out_ = step;
  if (!paths_) return;
  nlohmann::ordered_json record = {{"step", step}, {"time", unix_seconds()}, {"test_loss", figures.loss}};
  tensorboard_->scalar("test/loss", step, figures.loss);
  prometheus_->set("test_loss", figures.loss);
  if (figures.accuracy) {
    record["test_accuracy"] = *figures.accuracy;
    tensorboard_->scalar("test/accuracy", step, *figures.accuracy);
    prometheus_->set("test_accuracy", *figures.accuracy);
  }
  metrics_->record(record);
  tensorboard_->flush();
  write_prometheus(step);
  warn_of_lost_figures();
  if (std::isfinite(figures.loss)) held_out_loss_.push_back({step, figures.loss});
  held_out_text_ = fmt::format("  test loss {:.4f}{}", figures.loss, accuracy_text(" accuracy", figures));
  show_progress(step);
  draw_loss_curve();
}

void TrainingLog::returns(int64_t step, const ReturnFigures& figures) {
  step_of_returns_ = step;
  if (!paths_) return;
  nlohmann::ordered_json record = {{"step", step}, {"time", unix_seconds()}};
  std::string text;
  for (const auto& [side, name, found] :
       {std::tuple{"test", "held-out", figures.held_out}, std::tuple{"train", "training", figures.trained}}) {
    if (!found) continue;
    for (const auto& [figure, value] :
         {std::pair{"return", found->last_ten}, std::pair{"return_first_episode", found->first_episode}}) {
      record[fmt::format("{}_{}", side, figure)] = value;
      tensorboard_->scalar(fmt::format("{}/{}", side, figure), step, value);
      prometheus_->set(fmt::format("{}_{}", side, figure), value);
    }
    text += fmt::format("{} {:.2f} on {} tasks (first episode {:.2f})", text.empty() ? "" : ",",
                        found->last_ten, name, found->first_episode);
  }
  metrics_->record(record);
  tensorboard_->flush();
  write_prometheus(step);
  warn_of_lost_figures();
  console_.info(fmt::format("in-context return after step {}:{}", step, text));
}

void TrainingLog::write_prometheus(int64_t step) {
  prometheus_->set("step", static_cast<double>(step));
  prometheus_->set("time_seconds", unix_seconds());
  prometheus_->write();
}

void TrainingLog::measuring_held_out(int64_t step, double share) {
  if (!paths_) return;
  progress_->update(step, fmt::format("{}  measuring the held-out loss, {:.0f}%", rate_text_, 100 * share));
}

void TrainingLog::show_progress(int64_t step) {
  progress_->update(step, rate_text_ + held_out_text_ + rest_text_);
}

void TrainingLog::end(bool finished) {
  progress_.reset();
  tell_memory();
  if (!paths_) return;
  if (finished && !given_.empty()) tensorboard_->succeeded();
  tensorboard_->flush();
  prometheus_->write_now();
  draw_loss_curve();
}

/// A full disk must not end a run, but its user should learn once which figures are missing.
void TrainingLog::warn_of_lost_figures() {
  std::string failure = metrics_->failure().empty() ? tensorboard_->failure() : metrics_->failure();
  if (failure.empty()) failure = prometheus_->failure();
  if (failure.empty() || warned_of_lost_figures_) return;
  warned_of_lost_figures_ = true;
  console_.warn(fmt::format("figures are lost from here on and training continues: {}", failure));
}

/// Reads the curve of the run that a resumed run continues.
void TrainingLog::read_back_curve() {
  std::map<std::string, Curve> metrics = read_metrics(paths_->metrics);
  for (const auto& [name, points] :
       {std::pair{"loss", &training_loss_}, std::pair{"test_loss", &held_out_loss_}}) {
    const Curve& curve = metrics[name];
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (std::isfinite(curve.y[i])) points->push_back({curve.x[i], curve.y[i]});
    }
  }
  for (const auto& [name, step] :
       {std::pair{"test_loss", &step_of_held_out_}, std::pair{"test_return", &step_of_returns_},
        std::pair{"train_return", &step_of_returns_}}) {
    if (!metrics[name].x.empty()) *step = static_cast<int64_t>(metrics[name].x.back());
  }
}

void TrainingLog::draw_loss_curve() const {
  const auto series = [](const char* name, const std::vector<Point>& points) {
    Series line;
    line.name = name;
    for (const Point& point : points) {
      line.x.push_back(static_cast<double>(point.step));
      line.y.push_back(point.value);
    }
    return line;
  };
  Series raw = series("", training_loss_), smooth = series("training loss", training_loss_);
  raw.faint = true;
  smooth.y = smoothed(raw.y, 0.6);
  Chart chart;
  chart.title = "Loss";
  chart.x_label = "optimizer step";
  chart.y_label = "cross-entropy a target (nats)";
  chart.series = {raw, smooth, series("held-out tasks, last position", held_out_loss_)};
  try {
    for (const char* ending : {".svg", ".png"}) chart.draw(paths_->loss_curve.string() + ending);
  } catch (const std::filesystem::filesystem_error& error) {
    console_.warn(fmt::format("the loss curve was not drawn and training continues: {}", error.what()));
  }
}

}  // namespace adtrain

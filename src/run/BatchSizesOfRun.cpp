#include "run/BatchSizesOfRun.h"

#include <utility>

namespace adtrain {
namespace {

constexpr std::pair<const char*, std::optional<int64_t> BatchSizesOfRun::*> kFields[] = {
    {"train_batch_size", &BatchSizesOfRun::train_batch_size},
    {"accumulation", &BatchSizesOfRun::accumulation},
    {"global_batch_size", &BatchSizesOfRun::global_batch_size},
    {"test_batch_size", &BatchSizesOfRun::test_batch_size},
};

}  // namespace

BatchSizesOfRun BatchSizesOfRun::kept(const TrainingOptions& options, const Earlier& earlier, int64_t ranks) {
  BatchSizesOfRun sizes;
  const TrainingOptions& before = earlier.options;
  const bool other_global_batch =
      options.global_batch_size && options.global_batch_size != before.global_batch_size;
  if (options.train_batch_size == kAutoBatchSize && !other_global_batch) {
    if (earlier.found && earlier.ranks == ranks) {
      sizes.train_batch_size = before.train_batch_size;
      sizes.accumulation = before.gradient_accumulation_steps;
    } else {
      sizes.global_batch_size = before.global_batch_size.value_or(before.train_batch_size * earlier.ranks *
                                                                  before.gradient_accumulation_steps);
      sizes.accumulation = 1;
    }
  }
  if (options.test_batch_size == kAutoBatchSize && earlier.found)
    sizes.test_batch_size = before.test_batch_size;
  return sizes;
}

void BatchSizesOfRun::put_into(TrainingOptions& options) const {
  if (train_batch_size) options.train_batch_size = *train_batch_size;
  if (accumulation) options.gradient_accumulation_steps = *accumulation;
  if (global_batch_size) options.global_batch_size = *global_batch_size;
  if (test_batch_size) options.test_batch_size = *test_batch_size;
}

nlohmann::json BatchSizesOfRun::to_json() const {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, field] : kFields) {
    if (this->*field) json[name] = *(this->*field);
  }
  return json;
}

BatchSizesOfRun BatchSizesOfRun::from(const nlohmann::json& json) {
  BatchSizesOfRun sizes;
  for (const auto& [name, field] : kFields) {
    if (json.contains(name)) sizes.*field = json.at(name).get<int64_t>();
  }
  return sizes;
}

}  // namespace adtrain

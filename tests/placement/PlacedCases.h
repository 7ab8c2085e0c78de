#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "base/Gpu.h"
#include "model/AlgorithmDistillation.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"
#include "placement/MemoryLimits.h"
#include "support/FreshSeed.h"

/// Networks for devices, fresh random rows for them, and maps.
namespace adtrain::testing {

inline constexpr int64_t kBlocks = 5;

/// A network and fresh random rows for it.
struct PlacedCase {
  std::string name;
  ModelOptions options;
  ModelShape shape;
  /// Draws so many rows of so many steps, which of compressed rows are as many as they have; one function of
  /// each group of spaces.
  std::vector<std::function<Batch(int64_t rows, int64_t steps)>> draw;

  std::unique_ptr<AlgorithmDistillation> model(uint64_t seed = 3) const {
    return AlgorithmDistillation::create(options, shape, seed);
  }
  /// Four batches of whole windows, or one of each group.
  std::vector<Batch> batches() const {
    std::vector<Batch> made;
    for (size_t i = 0; i < (draw.size() > 1 ? draw.size() : 4); ++i)
      made.push_back(draw[i % draw.size()](3, options.n_transit));
    return made;
  }
  /// What rows that grow are sent at this step.
  Batch step_of(const Batch& rows, int64_t step) const {
    if (!shape.spaces.empty()) return window(rows, step, 1);
    return step == 0 ? part(rows, 1, 0, 1) : part(rows, 1, step - 1, 2);
  }
};

/// Every network over rows of the grid families, every space, and several groups of spaces.
inline std::vector<PlacedCase> every_placed_case() {
  at::manual_seed(fresh_seed());
  std::vector<PlacedCase> cases;
  const auto add = [&](const std::string& name, ModelOptions options,
                       const ModelShape& shape) -> PlacedCase& {
    options.tf_n_layer = kBlocks;
    return cases.emplace_back(PlacedCase{name, options, shape, {}});
  };
  for (const Variant& variant : plain_variants()) {
    add(variant.name, variant.options, ModelShape{}).draw = {
        [](int64_t rows, int64_t steps) { return random_plain(rows, steps); }};
  }
  const Variant compressed = variant("compressed");
  add(compressed.name, compressed.options, ModelShape{}).draw = {
      [interval = compressed.options.compress_interval](int64_t rows, int64_t /*steps*/) {
        const auto lengths = [&] {
          const at::Tensor drawn = at::randint(interval + 1, {rows}, at::kInt);
          return std::vector<int32_t>(drawn.const_data_ptr<int32_t>(),
                                      drawn.const_data_ptr<int32_t>() + rows);
        };
        const std::vector<int32_t> previous = lengths();
        return random_compressed(previous, lengths(), interval);
      }};
  for (const SpaceVariant& variant : space_variants()) {
    add(variant.name, variant.options, variant.shape()).draw = {
        [variant](int64_t rows, int64_t steps) { return random_rows(variant, rows, steps); }};
  }
  for (const GroupedVariant& variant : grouped_variants()) {
    PlacedCase& made = add(variant.name, variant.groups.front().options, variant.shape());
    for (int64_t group = 0; group < std::ssize(variant.groups); ++group) {
      const SpaceVariant& of_group = variant.groups[static_cast<size_t>(group)];
      made.draw.push_back([of_group, group](int64_t rows, int64_t steps) {
        Batch drawn = random_rows(of_group, rows, steps);
        drawn.group = group;
        return drawn;
      });
    }
  }
  return cases;
}

inline constexpr int64_t kPlenty = int64_t{1} << 40;
inline MemoryLimits plenty(int64_t bytes_of_gpu = kPlenty) {
  return {
      .gpus = {{0, bytes_of_gpu}, {1, bytes_of_gpu}, {2, bytes_of_gpu}}, .cpu = kPlenty, .from_user = true};
}

/// A map, and how many runs of neighbours it has.
struct Placed {
  const char* map;
  int64_t stages;
};
inline constexpr Placed kMaps[] = {
    {"{\"\": 0}", 1},
    {"{\"\": 0, blocks.2: 1, blocks.3: 1, blocks.4: 2, head: 2}", 3},
    {"{embeddings: 2, blocks: 0, blocks.1: 1, blocks.3: 1, head: 1}", 7},
    {"{\"\": cpu}", 1},
    {"{embeddings: 0, blocks: cpu, head: cpu}", 2},
    {"{embeddings: cpu, blocks: 1, blocks.2: cpu, head: cpu}", 5},
};

/// A map over GPUs, and for how many modules that stream it has room at least.
struct PlacedOnGpus {
  const char* map;
  int64_t buffers;
};
inline constexpr PlacedOnGpus kMapsOnOneGpu[] = {
    {"{embeddings: 0, blocks: 0, blocks.2: cpu, blocks.3: cpu, blocks.4: cpu, head: cpu}", 2},
    {"{embeddings: cpu, blocks: cpu, head: 0}", 2},
};
inline constexpr PlacedOnGpus kMapsOnTwoGpus[] = {
    {"{embeddings: 0, blocks: 0, blocks.3: 1, blocks.4: 1, head: 1}", 0},
    {"{embeddings: 1, blocks: 0, blocks.1: 1, blocks.4: 1, head: 0}", 0},
    {"{embeddings: 0, blocks: 0, blocks.2: 1, blocks.3: cpu, blocks.4: cpu, head: cpu}", 2},
};

inline std::vector<at::Device> visible_gpus() {
  std::vector<at::Device> gpus;
  for (int8_t gpu = 0; gpu < static_cast<int8_t>(visible_gpu_count()); ++gpu)
    gpus.emplace_back(at::kCUDA, gpu);
  return gpus;
}

}  // namespace adtrain::testing

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/quantised/QuantisedKernels.h"

/// Which way is the fastest for many rows, by a model of what an H100 took.
namespace adtrain::kernels {

/// A tile of many_rows_product(), in microseconds.
struct TileTimes {
  ProductWay way;
  int64_t rows;
  int64_t together;  ///< thread blocks of a multiprocessor
  double alone;      ///< a thread block without its steps
  double step;       ///< 64 columns, where a multiprocessor has one thread block
  double full_step;  ///< where all of them have as many as fit
  double exchange;   ///< of a cluster
  double of_block;   ///< the same for each of its blocks
};

/// The tile and the splits for so many rows, or the library where weights are few or rows many.
inline ProductPlan many_rows_plan(int64_t out_features, int64_t in_features, int64_t rows, int processors) {
  constexpr TileTimes kTiles[] = {{ProductWay::kTile128x64, 64, 2, 1.5, 0.45, 0.76, 0.8, 0.42},
                                  {ProductWay::kTile128x128, 128, 1, 2.6, 0.48, 0.54, 2.4, 0.27},
                                  {ProductWay::kTile128x256, 256, 1, 3.3, 0.65, 0.76, 4.0, 0.75}};
  constexpr int64_t kFeatures = 128;
  const auto divided_up = [](int64_t count, int64_t by) { return (count + by - 1) / by; };
  const double millions = 1e-6 * static_cast<double>(out_features * in_features);
  // The library's product and the dequantised weights before it.
  double least =
      5.5 + 4e-4 * static_cast<double>(in_features) + (0.65 + 2.6e-3 * static_cast<double>(rows)) * millions;
  ProductPlan plan = {ProductWay::kLibrary};
  const int64_t steps = in_features / kBlockColumns;
  for (const TileTimes& tile : kTiles) {
    const int64_t tiles = divided_up(out_features, kFeatures) * divided_up(rows, tile.rows);
    for (const int splits : {1, 2, 3, 4, 6, 8}) {
      if (splits > steps) break;
      // Clusters of more than two thread blocks leave some multiprocessors idle.
      const int64_t usable = splits <= 2 ? processors : processors * 10 / 11, blocks = tiles * splits;
      // The blocks of the next kernel come early, and some lie together.
      const double step = 2 * blocks <= usable ? tile.step : tile.full_step;
      const double exchange = splits == 1 ? 0 : tile.exchange + tile.of_block * splits;
      const double taken = static_cast<double>(divided_up(blocks, usable * tile.together)) *
                           (tile.alone + step * static_cast<double>(divided_up(steps, splits)) + exchange);
      if (taken >= least) continue;
      least = taken;
      plan = {tile.way, splits};
    }
  }
  return plan;
}

}  // namespace adtrain::kernels

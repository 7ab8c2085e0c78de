#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/quantised/QuantisedKernels.h"

/// Which way is the fastest for many rows, by a model of what an H200 took.
namespace adtrain::kernels {

/// A tile of many_rows_product(), in microseconds, fitted to five numbers of rows of eight matrices.
struct TileTimes {
  ProductWay way;
  int64_t rows;
  double alone;     ///< a thread block without its steps
  double step;      ///< 64 columns
  double exchange;  ///< of a cluster
  double of_block;  ///< the same for each of its blocks
};

/// The tile and the splits for so many rows, or the library where weights are few or rows many.
inline ProductPlan many_rows_plan(const QuantisedWeights& weights, int64_t rows, int processors) {
  constexpr TileTimes kTiles[] = {{ProductWay::kTile128x64, 64, 2.4, 0.315, -0.3, 0.65},
                                  {ProductWay::kTile128x128, 128, 3.2, 0.385, 2.2, 0.27},
                                  {ProductWay::kTile128x256, 256, 4.6, 0.65, 2.2, 0.75}};
  constexpr int64_t kFeatures = 128;
  const auto divided_up = [](int64_t count, int64_t by) { return (count + by - 1) / by; };
  const int64_t in_features = weights.in_features, out_features = weights.out_features;
  const double millions = 1e-6 * static_cast<double>(out_features * in_features);
  const double codes = weights.form == WeightForm::kEightBits ? 1.12 : 0.66;
  // The library's product and the dequantised weights before it.
  double least =
      4.7 + 8e-4 * static_cast<double>(in_features) + (codes + 2.1e-3 * static_cast<double>(rows)) * millions;
  ProductPlan plan = {ProductWay::kLibrary};
  const int64_t steps = in_features / kBlockColumns;
  for (const TileTimes& tile : kTiles) {
    const int64_t tiles = divided_up(out_features, kFeatures) * divided_up(rows, tile.rows);
    for (const int splits : {1, 2, 3, 4, 6, 8}) {
      if (splits > steps) break;
      // Clusters of more than two thread blocks leave some multiprocessors idle.
      const int64_t usable = splits <= 2 ? processors : processors * 10 / 11, blocks = tiles * splits;
      const double exchange = splits == 1 ? 0 : tile.exchange + tile.of_block * splits;
      const double taken =
          static_cast<double>(divided_up(blocks, usable)) *
          (tile.alone + tile.step * static_cast<double>(divided_up(steps, splits)) + exchange);
      if (taken >= least) continue;
      least = taken;
      plan = {tile.way, splits};
    }
  }
  return plan;
}

}  // namespace adtrain::kernels

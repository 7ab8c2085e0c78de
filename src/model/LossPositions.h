#pragma once

namespace adtrain {

/// Where a training window is read.
enum class LossPositions {
  kLast,  ///< one target: the action behind the whole context, as published
  kAll,   ///< a target behind every prefix of the window, each as the published forward pass on that prefix
          ///< would give it
};

}  // namespace adtrain

#pragma once

namespace adtrain {

/// The positions of a training window at which the loss is computed.
enum class LossPositions {
  kLast,  ///< one target: the action after the whole context, as published
  kAll,   ///< a target after every prefix of the window, each as the published forward pass on that prefix
          ///< would give it
};

}  // namespace adtrain

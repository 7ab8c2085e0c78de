#pragma once

#include <vector>

#include "environments/TaskSpaces.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// The pieces that read observations and predict actions, none of which is kAuto. What auto means:
///
/// | space | pre_norm | xland | vintix |
/// |---|---|---|---|
/// | observation: a grid of whole numbers of 4 × 4 cells or more | embedding | convolution | embedding |
/// | observation: other whole numbers | embedding | embedding | embedding |
/// | observation: real numbers | linear | linear | mlp |
/// | action: whole numbers | cross_entropy | cross_entropy | cross_entropy |
/// | action: real numbers | mse | mse | mse |
SpacePieces pieces_for(const ModelOptions& options, const TaskSpaces& spaces);

/// A finding for each setting with which no network reads the observations of each group or predicts its
/// actions.
void check_spaces(const ModelOptions& options, const std::vector<TaskSpaces>& groups, Findings& findings);

}  // namespace adtrain

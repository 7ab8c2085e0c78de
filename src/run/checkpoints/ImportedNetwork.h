#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/Parameters.h"

namespace adtrain {

/// What names and shapes of a network's tensors, a Python project's or an export's, say of it as
/// configuration keys: transformer_block, model where it is GPT2, tf_n_embd, tf_n_layer, num_actions,
/// grid_size and, where the block has them, tf_n_inner and n_transit. The number of heads shows in no shape,
/// nor do the block and the pieces of a network composed of pieces. Throws CheckpointError that names `file`,
/// and says which names were found where it is none of the networks here; also for one over tasks of any
/// space, as no shape shows the spaces.
nlohmann::json settings_of_network(const std::vector<NamedTensor>& model, const std::filesystem::path& file);

}  // namespace adtrain

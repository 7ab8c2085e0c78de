#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/Document.h"

namespace adtrain {

/// Reads what guides to training on several GPUs write in their YAML files: the nested maps `experiment`,
/// `training` and `model_loading`, whose pairs become keys of the document (`experiment: {batch_size: 32}` is
/// train_batch_size), and the keys of Transformers' model loading (device_map, torch_dtype, load_in_8bit and
/// so on), in such a map or not. quantization_config becomes the keys in it. What asks for nothing is
/// dropped; what is not there becomes an error of the document that says what does it here. `keys` are those
/// that the configuration has. Returns remarks.
std::vector<std::string> read_guide_maps(Document& document, const std::set<std::string>& keys);

}  // namespace adtrain

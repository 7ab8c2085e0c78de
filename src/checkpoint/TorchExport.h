#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "checkpoint/CheckpointStore.h"

namespace adtrain {

/// The bytes of a `.pt` file that Python's `torch.load(file, weights_only=True)` reads as a dict of plain
/// dicts, numbers, texts and CPU tensors:
///
///     step       the snapshot's
///     model      a tensor for each parameter, by name: a state_dict
///     optimizer  exp_avg and exp_avg_sq, dicts by the same names; step, a tensor; and what else the snapshot
///                has beside the model. By names, as an order of parameters is one module's own affair.
///     config     `config`, an object of numbers, texts, booleans and nulls
///     adtrain    `version`, a text: the Python projects write no such entry, and pass over it
///
/// libtorch's own writer makes them. Takes twice the tensors' memory.
std::string torch_export_bytes(const Snapshot& snapshot, const nlohmann::json& config,
                               const std::string& version);

/// Whether the file's name ends as those of PyTorch's files do, in .pt or .pth.
bool is_named_as_torch_file(const std::filesystem::path& file);

}  // namespace adtrain

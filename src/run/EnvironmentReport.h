#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace adtrain {

/// What a bug report needs: versions built against and found, devices, limits, and what the launcher says.
/// {"versions": {name: {"built", "found"}}, "cpu": {…}, "gpus": […], "limits": {…}, "launcher": {…}}
nlohmann::json environment_report();

/// The same for a person to read.
std::string environment_text(const nlohmann::json& report);

}  // namespace adtrain

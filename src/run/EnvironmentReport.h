#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace adtrain {

/// What a bug report needs: versions built against and found, devices, limits, what the launcher says, and
/// which kernels a run takes here. {"versions": {name: {"built", "found"}}, "cpu": {…}, "gpus": […],
/// "limits": {…}, "launcher": {…}, "kernels": see KernelReport.h, of the default settings}
nlohmann::json environment_report();

/// The same for a person to read.
std::string environment_text(const nlohmann::json& report);

/// For --version, in two lines: the version with commit and build type, then the libraries that are loaded.
std::string version_text();

/// The program and the libraries that it runs with: {"version", "commit" (null where it is not known),
/// "build", "libtorch", "CUDA runtime", "CUDA driver", "NCCL", "MPI"}.
nlohmann::json program_identity();

}  // namespace adtrain

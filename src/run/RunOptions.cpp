#include "run/RunOptions.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace adtrain {
void RunOptions::declare(Section& section) {
  section.key("run_name", run_name,
              "Folder of the run below runs_dir; null names it MODEL-ENV-seedN, N being env_split_seed.");
  section.key("runs_dir", runs_dir, "Folder that holds all runs.");
  section.key("device", device,
              {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
              "What ranks, and the collection, compute on; auto takes GPUs where the machine has them.");
  section
      .key("cpu_threads", cpu_threads,
           "Threads of each rank for arithmetic on the CPU; null shares the cores that the launcher granted "
           "among the ranks of a host.")
      .unit("threads")
      .at_least(1)
      .at_most(1024);
  section.key(
      "plugins", plugins,
      "Shared objects that add task families and networks (adtrain --plugin): a path, a list of paths, or "
      "paths with colons between them.");
  section.all_free_on_resume();
}

/// A run's folder must be inside runs_dir: --overwrite deletes what is in it.
void RunOptions::check(Findings& findings) const {
  if (!run_name) return;
  constexpr const char* kExpected =
      "expected the name of a folder below runs_dir, such as faster or sweep/lr-3";
  const auto refuse = [&](const std::string& found) {
    findings.add("run_name", fmt::format("found {}; {}", found, kExpected));
  };
  const std::filesystem::path path(*run_name);
  const auto steps_out = [](const std::filesystem::path& part) { return part == ".." || part == "."; };
  if (std::ranges::any_of(*run_name, [](unsigned char letter) { return letter < ' ' || letter == 127; })) {
    return refuse("a text with control characters");
  }
  if (run_name->find_first_not_of(' ') == std::string::npos) return refuse("an empty text");
  if (path.is_absolute()) return refuse(fmt::format("the absolute path '{}'", *run_name));
  if (std::ranges::any_of(path, steps_out))
    return refuse(fmt::format("'{}', which leads elsewhere", *run_name));
}

}  // namespace adtrain

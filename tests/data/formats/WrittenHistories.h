#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "support/FreshSeed.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {

/// Data sets that h5py has written in published layouts (write_histories.py), with the windows that they must
/// give. They are written once for all tests, as Python takes its time to start.
class WrittenHistories {
 public:
  /// `odd0` to `odd5` are of our version 2, with element types, chunks and filters drawn anew each time.
  static const WrittenHistories& get(const std::string& name) {
    static const AllWritten all;
    return all.sets.at(name);
  }
  static constexpr const char* kOdd[] = {"odd0", "odd1", "odd2", "odd3", "odd4", "odd5"};

  std::filesystem::path folder, path;
  nlohmann::json document;
  std::string bytes;  ///< of all windows, one after the other
  uint64_t seed = 0;

 private:
  struct AllWritten {
    AllWritten() {
      const uint64_t seed = fresh_seed();
      std::string arguments = " xland=xland adtrain1=adtrain1 vintix=vintix";
      for (const char* odd : kOdd) arguments += fmt::format(" {}=adtrain2", odd);
      const Finished python =
          run_shell(fmt::format("{} {} {} {}{}", quoted(ADTRAIN_PYTHON),
                                quoted(ADTRAIN_SOURCE_DIR "/tests/data/formats/write_histories.py"),
                                quoted(folder.path().string()), seed, arguments));
      if (python.exit_code != 0) throw std::runtime_error(python.output);
      for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        WrittenHistories set;
        set.folder = entry.path();
        set.path = set.folder / (set.folder.filename() == "vintix" ? "vintix" : "histories.hdf5");
        set.document = nlohmann::json::parse(read_file(set.folder / "windows.json"));
        set.bytes = read_file(set.folder / "windows.bin");
        set.seed = seed;
        sets[entry.path().filename()] = std::move(set);
      }
    }
    TemporaryFolder folder;
    std::map<std::string, WrittenHistories> sets;
  };
};

/// Runs lines of Python, which have h5py and numpy imported.
inline void run_python(const std::string& lines) {
  const TemporaryFolder folder;
  write_file(folder.path() / "lines.py", "import h5py, numpy as np\n" + lines);
  const Finished python =
      run_shell(fmt::format("{} {}", quoted(ADTRAIN_PYTHON), quoted((folder.path() / "lines.py").string())));
  if (python.exit_code != 0) throw std::runtime_error(python.output);
}

}  // namespace adtrain

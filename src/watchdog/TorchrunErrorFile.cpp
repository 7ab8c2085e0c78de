#include "watchdog/TorchrunErrorFile.h"

#include <cmath>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "base/File.h"
#include "base/StandardStreams.h"
#include "launch/LaunchContext.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

std::string type_of(ExitCode code) {
  switch (code) {
    case ExitCode::kUsage:
      return "ConfigError";
    case ExitCode::kEnvironment:
      return "EnvironmentError";
    case ExitCode::kData:
      return "DataError";
    case ExitCode::kCheckpoint:
      return "CheckpointError";
    case ExitCode::kNonFinite:
      return "NonFiniteError";
    case ExitCode::kOutOfMemory:
      return "OutOfMemoryError";
    default:
      return "UnexpectedError";
  }
}

}  // namespace

void write_torchrun_error_file(const std::exception& error) {
  const auto path = process_environment("TORCHELASTIC_ERROR_FILE");
  if (!path) return;
  const ErrorMeaning meaning = meaning_of(error);
  const std::string text = fmt::format("{}: {}", type_of(meaning.code), meaning.error);
  // torchrun's table shows the call stack. This program has none to show, so the message takes its place.
  nlohmann::json content;
  content["message"]["message"] = text;
  content["message"]["extraInfo"]["py_callstack"] = text;
  content["message"]["extraInfo"]["timestamp"] = fmt::format("{:.0f}", std::floor(unix_seconds()));
  try {
    // A file name may contain any bytes; torchrun expects UTF-8.
    write_file_atomically(*path, content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception& unwritten) {
    print_error(fmt::format("adtrain: torchrun's error file was not written: {}\n", unwritten.what()));
  }
}

}  // namespace adtrain

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "telemetry/AppendingFile.h"

namespace adtrain {

/// What a run was given, by name: numbers, truth values and texts.
using Hyperparameters = std::vector<std::pair<std::string, std::variant<double, bool, std::string>>>;

/// Writes scalars and hyperparameters as a TensorBoard event file: TFRecords of `Event` protocol buffers
/// (tensorflow/core/util/event.proto; tensorflow/core/lib/io/record_writer). For one thread.
class TensorBoardWriter {
 public:
  /// Opens a new file in `folder`. `first_step` > 0 tells readers to drop what earlier files hold at or after
  /// it: a resumed run repeats those steps. Throws std::filesystem::filesystem_error where it cannot be
  /// written.
  TensorBoardWriter(const std::filesystem::path& folder, int64_t first_step);
  ~TensorBoardWriter() { flush(); }

  /// Readers see it after `flush`.
  void scalar(std::string_view tag, int64_t step, double value);
  /// For TensorBoard's HParams page, which takes those of a run's first file. `group` is what runs of equal
  /// hyperparameters have in common there.
  void hyperparameters(const Hyperparameters& given, std::string_view group);
  /// The run has done all its steps: HParams shows its status as a success.
  void succeeded();
  void flush();

  /// Why the last flush failed; empty if it did not.
  const std::string& failure() const { return file_.failure(); }

 private:
  void event(std::string_view payload);

  AppendingFile file_;
  std::string pending_;
};

/// The pieces of the format, for tests.
namespace tensorboard {
/// CRC-32C (Castagnoli) of `bytes`, not masked.
uint32_t crc32c(std::string_view bytes);
/// One record: length, masked checksum of the length, payload, masked checksum of the payload.
std::string record(std::string_view payload);
/// An `Event` that opens a file.
std::string version_event(double wall_time);
/// An `Event` with one scalar.
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
/// A `Summary` with the hyperparameters of a run that began at `start`, in seconds since 1970
/// (tensorboard/plugins/hparams/plugin_data.proto).
std::string hyperparameters_summary(const Hyperparameters& given, std::string_view group, double start);
/// An `Event` by which a resumed run starts at `step`.
std::string session_start_event(double wall_time, int64_t step);
}  // namespace tensorboard

}  // namespace adtrain

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "telemetry/AppendingFile.h"

namespace adtrain {

/// Writes scalars as a TensorBoard event file: TFRecords of `Event` protocol buffers
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
/// An `Event` by which a resumed run starts at `step`.
std::string session_start_event(double wall_time, int64_t step);
}  // namespace tensorboard

}  // namespace adtrain

#include "telemetry/TensorBoardWriter.h"

#include <array>
#include <bit>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Host.h"

namespace adtrain {
namespace tensorboard {
namespace {

template <class Number>
std::string little_endian(Number number) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

/// Protocol buffers' wire types.
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string tag(uint64_t field, Wire wire) {
  return varint(field << 3 | wire);
}
std::string bytes_field(uint64_t field, std::string_view content) {
  return tag(field, kBytes) + varint(content.size()) + std::string(content);
}
std::string integer_field(uint64_t field, int64_t value) {
  return tag(field, kVarint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint64_t field, double value) {
  return tag(field, kFixed64) + little_endian(value);
}
std::string float_field(uint64_t field, float value) {
  return tag(field, kFixed32) + little_endian(value);
}

/// The reflected polynomial of Castagnoli, a byte at a time.
constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78U : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t masked(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

/// google.protobuf.Value: 2 number, 3 string, 4 bool.
std::string value_of(const std::variant<double, bool, std::string>& value) {
  if (const auto* number = std::get_if<double>(&value)) return double_field(2, *number);
  if (const auto* truth = std::get_if<bool>(&value)) return integer_field(4, *truth ? 1 : 0);
  return bytes_field(3, std::get<std::string>(value));
}

/// Summary {1 Value {1 tag, 8 TensorProto, 9 SummaryMetadata {1 PluginData {1 plugin_name, 2 content}}}}. The
/// tensor is an empty one of floats: readers drop values without any.
std::string hparams_summary(std::string_view tag, std::string_view content) {
  constexpr int64_t kFloat = 1;
  const std::string no_numbers = bytes_field(2, "");  // TensorShapeProto {2 Dim {}}
  const std::string tensor = integer_field(1, kFloat) + bytes_field(2, no_numbers);
  const std::string plugin = bytes_field(1, "hparams") + bytes_field(2, content);
  return bytes_field(1,
                     bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, bytes_field(1, plugin)));
}

/// HParamsPluginData {4 SessionEndInfo {1 status, 2 end_time_secs}}.
std::string success_summary(double end) {
  constexpr int64_t kSuccess = 1;
  return hparams_summary("_hparams_/session_end_info",
                         bytes_field(4, integer_field(1, kSuccess) + double_field(2, end)));
}

std::string summary_event(double wall_time, std::string_view summary) {
  return double_field(1, wall_time) + bytes_field(5, summary);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = 0xffffffffU;
  for (const unsigned char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ byte) & 0xff];
  return ~crc;
}

std::string record(std::string_view payload) {
  const std::string length = little_endian(static_cast<uint64_t>(payload.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(payload) +
         little_endian(masked(crc32c(payload)));
}

// Event: 1 wall_time, 2 step, 3 file_version, 5 Summary, 7 SessionLog. A wall time of 0 is a default and not
// written.
std::string version_event(double wall_time) {
  return (wall_time == 0 ? "" : double_field(1, wall_time)) + bytes_field(3, "brain.Event:2");
}

std::string scalar_event(double wall_time, int64_t step, std::string_view name, float value) {
  const std::string summary_value = bytes_field(1, name) + float_field(2, value);
  return double_field(1, wall_time) + integer_field(2, step) + bytes_field(5, bytes_field(1, summary_value));
}

// HParamsPluginData {3 SessionStartInfo {1 map of hparams {1 key, 2 value}, 4 group_name, 5
// start_time_secs}}.
std::string hyperparameters_summary(const Hyperparameters& given, std::string_view group, double start) {
  std::string info;
  for (const auto& [name, value] : given) {
    info += bytes_field(1, bytes_field(1, name) + bytes_field(2, value_of(value)));
  }
  info += bytes_field(4, group) + double_field(5, start);
  return hparams_summary("_hparams_/session_start_info", bytes_field(3, info));
}

std::string session_start_event(double wall_time, int64_t step) {
  constexpr int64_t kStart = 1;
  return double_field(1, wall_time) + integer_field(2, step) + bytes_field(7, integer_field(1, kStart));
}

}  // namespace tensorboard

namespace {

/// TensorBoard reads every file whose name holds "tfevents", in the order of names.
std::string file_name() {
  return fmt::format("events.out.tfevents.{:017.6f}.{}.{}", unix_seconds(), host_name(), getpid());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, int64_t first_step)
    : file_(folder / file_name()) {
  event(tensorboard::version_event(unix_seconds()));
  if (first_step > 0) event(tensorboard::session_start_event(unix_seconds(), first_step));
  flush();
}

void TensorBoardWriter::scalar(std::string_view tag, int64_t step, double value) {
  event(tensorboard::scalar_event(unix_seconds(), step, tag, static_cast<float>(value)));
}

void TensorBoardWriter::hyperparameters(const Hyperparameters& given, std::string_view group) {
  const double now = unix_seconds();
  event(tensorboard::summary_event(now, tensorboard::hyperparameters_summary(given, group, now)));
}

void TensorBoardWriter::succeeded() {
  const double now = unix_seconds();
  event(tensorboard::summary_event(now, tensorboard::success_summary(now)));
}

void TensorBoardWriter::flush() {
  file_.append(pending_);
  pending_.clear();
}

void TensorBoardWriter::event(std::string_view payload) {
  pending_ += tensorboard::record(payload);
}

}  // namespace adtrain

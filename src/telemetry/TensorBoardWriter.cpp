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

void TensorBoardWriter::flush() {
  file_.append(pending_);
  pending_.clear();
}

void TensorBoardWriter::event(std::string_view payload) {
  pending_ += tensorboard::record(payload);
}

}  // namespace adtrain

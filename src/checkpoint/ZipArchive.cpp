#include "checkpoint/ZipArchive.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <zlib.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr uint32_t kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kLongestComment = 0xffff;
constexpr uint32_t kIn64 = 0xffffffff;  ///< in a 32-bit field: the value is in the zip64 field
constexpr uint16_t kExtra64 = 1;
constexpr uint16_t kEncrypted = 1;
constexpr uint64_t kMostEntries = 1'000'000;

/// Where the entries' list is.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

struct ListedEntry {
  std::string name{};
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, local = 0;  ///< `local`: offset of its local header
};

class Parser {
 public:
  Parser(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void fail(uint64_t offset, const std::string& fault) const {
    throw CheckpointError(
        fmt::format("{} is not a file of torch.save: {} at byte {}; expected a zip archive of uncompressed "
                    "entries (PyTorch's format since 1.6): it is damaged, cut off, or another kind of file",
                    path_.string(), abridged(fault), offset));
  }

  Directory directory() const {
    const uint64_t end = offset_of_end();
    Directory found{number<uint32_t>(end + 16), number<uint32_t>(end + 12), number<uint16_t>(end + 10)};
    if (end >= kLocator64Bytes && number<uint32_t>(end - kLocator64Bytes) == kLocator64Signature) {
      const auto end64 = number<uint64_t>(end - kLocator64Bytes + 8);
      check_range(end64, kEnd64Bytes, "its zip64 end record");
      if (number<uint32_t>(end64) != kEnd64Signature) fail(end64, "no zip64 end record is");
      found = {number<uint64_t>(end64 + 48), number<uint64_t>(end64 + 40), number<uint64_t>(end64 + 32)};
    }
    check_range(found.offset, found.bytes, "its list of entries");
    if (found.entries > std::min(kMostEntries, found.bytes / kEntryBytes))
      fail(found.offset, fmt::format("a list of {} entries in {} bytes is", found.entries, found.bytes));
    return found;
  }

  /// Advances `offset` to the next one.
  ListedEntry listed(uint64_t& offset, uint64_t end) const {
    const uint64_t at = offset;
    if (end - at < kEntryBytes || number<uint32_t>(at) != kEntrySignature) fail(at, "no entry is");
    ListedEntry entry{.flags = number<uint16_t>(at + 8),
                      .method = number<uint16_t>(at + 10),
                      .crc = number<uint32_t>(at + 16),
                      .packed = number<uint32_t>(at + 20),
                      .size = number<uint32_t>(at + 24),
                      .local = number<uint32_t>(at + 42)};
    const uint64_t name = number<uint16_t>(at + 28), extra = number<uint16_t>(at + 30);
    const uint64_t comment = number<uint16_t>(at + 32);
    if (end - at < kEntryBytes + name + extra + comment) fail(at, "an entry that is cut off is");
    entry.name = bytes_.substr(at + kEntryBytes, name);
    read_extra64(entry, at + kEntryBytes + name, extra);
    offset = at + kEntryBytes + name + extra + comment;
    return entry;
  }

  std::string_view data(const ListedEntry& entry) const {
    if ((entry.flags & kEncrypted) != 0)
      fail(entry.local, fmt::format("an encrypted entry {} is", entry.name));
    if (entry.method != 0 || entry.packed != entry.size) {
      fail(entry.local, fmt::format("the entry {}, compressed by method {}, is", entry.name, entry.method));
    }
    check_range(entry.local, kLocalBytes, "a local header");
    if (number<uint32_t>(entry.local) != kLocalSignature) fail(entry.local, "no local header is");
    const uint64_t begin =
        entry.local + kLocalBytes + number<uint16_t>(entry.local + 26) + number<uint16_t>(entry.local + 28);
    check_range(begin, entry.size, fmt::format("the entry {}", entry.name));
    return bytes_.substr(begin, entry.size);
  }

 private:
  /// Little-endian; the caller has checked that it is inside.
  template <class Number>
  Number number(uint64_t offset) const {
    Number value{};
    std::memcpy(&value, bytes_.data() + offset, sizeof(Number));
    return value;
  }

  void check_range(uint64_t offset, uint64_t size, const std::string& what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      fail(offset, fmt::format("{} of {} bytes, beyond the file's {}, is", what, size, bytes_.size()));
  }

  uint64_t offset_of_end() const {
    if (bytes_.size() < kEndBytes) fail(0, fmt::format("the file's end, {} bytes in all, is", bytes_.size()));
    const uint64_t last = bytes_.size() - kEndBytes;
    const uint64_t first = last > kLongestComment ? last - kLongestComment : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      if (number<uint32_t>(at) == kEndSignature) return at;
    }
    fail(last, "no end record is");
  }

  /// The zip64 field holds, in this order, only the values that do not fit the 32-bit ones.
  void read_extra64(ListedEntry& entry, uint64_t at, uint64_t bytes) const {
    const uint64_t end = at + bytes;
    while (end - at >= 4) {
      const auto id = number<uint16_t>(at);
      const uint64_t size = number<uint16_t>(at + 2);
      if (end - at - 4 < size) fail(at, "an extra field that is cut off is");
      if (id == kExtra64) {
        uint64_t place = at + 4;
        for (uint64_t* value : {&entry.size, &entry.packed, &entry.local}) {
          if (*value != kIn64) continue;
          if (at + 4 + size - place < 8) fail(at, "a zip64 field that is cut off is");
          *value = number<uint64_t>(place);
          place += 8;
        }
      }
      at += 4 + size;
    }
  }

  std::string_view bytes_;
  const std::filesystem::path& path_;
};

}  // namespace

ZipArchive ZipArchive::parse(std::string_view bytes, const std::filesystem::path& path) {
  const Parser parser(bytes, path);
  const Directory directory = parser.directory();
  ZipArchive archive(path);
  uint64_t offset = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const uint64_t at = offset;
    const ListedEntry entry = parser.listed(offset, directory.offset + directory.bytes);
    if (entry.name.ends_with('/')) continue;  // a directory
    if (!archive.entries_.emplace(entry.name, parser.data(entry)).second)
      parser.fail(at, fmt::format("a second entry {} is", entry.name));
    archive.checksums_.emplace(entry.name, entry.crc);
  }
  return archive;
}

std::string_view ZipArchive::content(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw CheckpointError(
        fmt::format("{} has no entry {}; expected a file of torch.save", path_.string(), abridged(name)));
  }
  const std::string_view bytes = found->second;
  const auto crc =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  const uint32_t expected = checksums_.find(name)->second;
  if (crc != expected) {
    throw CheckpointError(
        fmt::format("{}: the entry {} has the CRC-32 {:08x}; the archive says {:08x}: its content is damaged",
                    path_.string(), abridged(name), crc, expected));
  }
  return bytes;
}

}  // namespace adtrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace adtrain {

/// Memory that one process has for itself, or that several have together, of which each fills the pieces that
/// are its own. Zeros at first. A value, whose copies are of the same memory.
struct SharedBytes {
  std::shared_ptr<uint8_t> bytes;
  size_t sharer = 0, sharers = 1;
  /// For who has filled all of its own pieces: this process writes no more.
  std::function<void()> close = [] {};

  /// Whether this process fills piece `piece`, whatever pieces its user has.
  bool fills(size_t piece) const { return piece % sharers == sharer; }
  /// How many of `pieces` pieces it fills.
  size_t own_pieces(size_t pieces) const { return (pieces + sharers - 1 - sharer) / sharers; }
};

/// Of this process alone.
inline SharedBytes own_bytes(size_t bytes) {
  const std::shared_ptr<uint8_t[]> owner(new uint8_t[bytes]());
  return {.bytes = {owner, owner.get()}};
}

}  // namespace adtrain

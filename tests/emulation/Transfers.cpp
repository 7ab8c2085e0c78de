#include "emulation/Transfers.h"

#include <array>
#include <cstring>

#include "emulation/Emulator.h"

namespace adtrain::emulation {

void TransferBarrier::set_up(int arrivals) {
  at_shared(shared_address(this), sizeof *this);
  phase_ = 0;
  arrivals_ = missing_ = static_cast<uint8_t>(arrivals);
  bytes_ = 0;
}

void TransferBarrier::arrive() {
  if (missing_ == 0) fail("more threads arrive at a barrier than it was set up for");
  --missing_;
  end_phase_if_complete();
}

void TransferBarrier::expect(int bytes) {
  if (missing_ == 0) fail("bytes are expected of a phase in which all have arrived");
  bytes_ += bytes;
}

void TransferBarrier::await(int phase) {
  while (phase_ % 2 == phase % 2) wait_for(this);
}

void TransferBarrier::come(int bytes) {
  bytes_ -= bytes;
  end_phase_if_complete();
}

void TransferBarrier::end_phase_if_complete() {
  if (missing_ > 0 || bytes_ != 0) return;
  ++phase_;
  missing_ = arrivals_;
  happen(this);
}

void start_box_copy(void* to, const BoxedMatrix& matrix, const BoxPlace& box, TransferBarrier& barrier) {
  const auto is_one_of = [](int number, int all) { return number >= 0 && number < all; };
  if (!is_one_of(box.head, matrix.heads) || !is_one_of(box.sequence, matrix.sequences))
    fail("a box of a head or a sequence that does not exist");
  constexpr int kChunk = 16, kSwizzled = 128;
  const int box_bytes = matrix.box_bytes, bytes = matrix.box_rows * box_bytes;
  char* const first = at_shared(shared_address(to), kChunk);
  if (shared_address(to) % (8 * box_bytes) != 0) fail("a box at a misaligned address");
  at_shared(shared_address(to) + bytes - kChunk, kChunk);
  const char* const of_head = matrix.from + box.head * matrix.of_head + box.sequence * matrix.of_sequence;
  do_later([=, &barrier] {
    for (int i = 0; i < matrix.box_rows; ++i) {
      const int key = i * box_bytes / kSwizzled % (box_bytes / kChunk);
      for (int chunk = 0; chunk < box_bytes / kChunk; ++chunk) {
        char* const own = first + i * box_bytes + (chunk ^ key) * kChunk;
        const int64_t from = box.byte + chunk * kChunk, row = box.row + i;
        if (row >= 0 && row < matrix.rows && from < matrix.row_bytes) {
          std::memcpy(own, of_head + row * matrix.of_row + from, kChunk);
        } else {
          std::memset(own, 0, kChunk);
        }
      }
    }
    barrier.come(bytes);
  });
}

void start_store(void* own, const float (&numbers)[4], TransferBarrier& barrier, int block) {
  const auto there = [block](void* mine, uint32_t bytes) {
    const uint32_t address = shared_address(mine);
    at_shared(address, bytes);
    return shared_memory_of(block) + address;
  };
  const std::array<float, 4> copy = {numbers[0], numbers[1], numbers[2], numbers[3]};
  char* const to = there(own, sizeof copy);
  auto* const counts = reinterpret_cast<TransferBarrier*>(there(&barrier, sizeof barrier));
  do_later([=] {
    std::memcpy(to, copy.data(), sizeof copy);
    counts->come(sizeof copy);
  });
}

}  // namespace adtrain::emulation

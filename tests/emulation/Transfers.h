#pragma once

#include <cstdint>

/// What src/kernels/primitives/TransferInstructions.cuh does, in the emulator.
namespace adtrain::emulation {

/// In shared memory.
class TransferBarrier {
 public:
  void set_up(int arrivals);
  void arrive();
  void expect(int bytes);
  void await(int phase);
  /// Bytes of a copy have come.
  void come(int bytes);

 private:
  void end_phase_if_complete();

  uint16_t phase_;
  uint8_t arrivals_, missing_;
  int32_t bytes_;
};
static_assert(sizeof(TransferBarrier) == 8);

/// A matrix in global memory, or one of each of several heads and sequences, and the boxes that are copied of
/// it. Strides in bytes.
struct BoxedMatrix {
  const char* from;
  int64_t rows, row_bytes;
  int box_rows, box_bytes;
  int64_t of_row = row_bytes, of_head = 0, of_sequence = 0;
  int heads = 1, sequences = 1;
};
/// Where a box begins: before or behind the matrix's rows there are zeros.
struct BoxPlace {
  int row, byte, head = 0, sequence = 0;
};

/// The copy happens at some time, as chance wills.
void start_box_copy(void* to, const BoxedMatrix& matrix, const BoxPlace& box, TransferBarrier& barrier);

/// To another block of the cluster, where `place` and `barrier` stand for what lies there at their places.
void start_store(void* place, const float (&numbers)[4], TransferBarrier& barrier, int block);

}  // namespace adtrain::emulation

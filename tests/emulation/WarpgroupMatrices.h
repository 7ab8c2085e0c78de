#pragma once

#include <cstdint>

/// What warpgroups do with matrices: "wgmma" of the PTX ISA. A warp's 16 rows of a product need nothing of
/// the other warps' rows, so that each warp is by itself here, but for the end of a group of products.
namespace adtrain::emulation {

/// A lane's part of sums (16 × columns) += left (16 × 16) · right (16 × columns).
struct GroupProduct {
  float* sums;  ///< four for every 8 columns
  int columns;
  uint32_t left[4];
  uint64_t right;        ///< matrix descriptor
  bool across;           ///< neighbours in memory are columns of the right operand, and else rows
  uint64_t shared_left;  ///< matrix descriptor of 64 rows in the place of `left`, or 0
  bool halves = false;   ///< of fp16 elements, else of bf16
  bool down = false;     ///< neighbours in memory are rows of the shared left operand, and else columns
  int32_t* whole_sums = nullptr;  ///< in the place of `sums`, of 32 products of bytes in shared memory
};

/// A product happens at once or when somebody waits for it, as chance wills; a warp's products happen in
/// order. It is an error where nobody waits for one, or where a warp of the warpgroup does not close them.
void start_product(const GroupProduct& own);
void close_products();
void wait_for_products(int left);

}  // namespace adtrain::emulation

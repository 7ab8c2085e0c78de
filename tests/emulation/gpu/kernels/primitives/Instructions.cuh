#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>

#include "emulation/Emulator.h"
#include "emulation/Matrices.h"

/// Stands in the place of src/model/kernels/gpu/Instructions.cuh: the same instructions in the emulator.
/// What each one does is said there.
namespace adtrain::kernels {

using Bf16 = __nv_bfloat16;

inline char* dynamic_shared_memory() {
  return emulation::shared_memory();
}
inline uint32_t shared_address(const void* pointer) {
  return emulation::shared_address(pointer);
}
inline unsigned lane_anew() {
  return emulation::place.thread.x % emulation::kLanes;
}

inline void multiply_add(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                         uint32_t right_high) {
  emulation::multiply_add({sums, {left[0], left[1], left[2], left[3]}, {right_low, right_high}});
}
inline void multiply_add_8(float (&sums)[4], uint32_t left_upper, uint32_t left_lower, uint32_t right) {
  emulation::multiply_add_8({sums, {left_upper, left_lower, 0, 0}, {right, 0}});
}

inline void load_matrices(uint32_t (&part)[4], uint32_t row_of_lane) {
  emulation::load_matrices<4, false>(part, row_of_lane);
}
inline void load_matrices_transposed(uint32_t (&part)[4], uint32_t row_of_lane) {
  emulation::load_matrices<4, true>(part, row_of_lane);
}
inline void load_two_matrices(uint32_t (&part)[2], uint32_t row_of_lane) {
  emulation::load_matrices<2, false>(part, row_of_lane);
}
inline void load_two_matrices_transposed(uint32_t (&part)[2], uint32_t row_of_lane) {
  emulation::load_matrices<2, true>(part, row_of_lane);
}
inline void store_matrices(uint32_t row_of_lane, const uint32_t (&part)[4]) {
  emulation::store_matrices(row_of_lane, part);
}

inline void load_pair_twice(float (&values)[4], const float* pair) {
  const char* from = emulation::at_shared(shared_address(pair), 2 * sizeof(float));
  std::memcpy(values, from, 2 * sizeof(float));
  std::memcpy(values + 2, from, 2 * sizeof(float));
}

inline void start_copy(void* to, const void* from) {
  emulation::start_copy(shared_address(to), from, 16, 16);
}
inline void start_copy_word(void* to, const void* from) {
  emulation::start_copy(shared_address(to), from, 4, 4);
}
inline void start_copy_or_clear(Bf16* to, const Bf16* from, bool copied) {
  emulation::start_copy(shared_address(to), from, 16, copied ? 16 : 0);
}
inline void start_copy_or_clear(float* to, const float* from, bool copied) {
  emulation::start_copy(shared_address(to), from, 4, copied ? 4 : 0);
}
inline void copies_arrived() {
  emulation::wait_for_copies(-1);
}
inline void close_copies() {
  emulation::close_copies();
}
template <int Groups = 1>
void copies_arrived_but_last() {
  emulation::wait_for_copies(Groups);
}

inline void prefetch(const void*) {}
inline void store_if(bool condition, Bf16* to, uint32_t pair) {
  if (condition) *reinterpret_cast<uint32_t*>(to) = pair;
}
inline void store_if(bool condition, Bf16* to, const uint32_t (&pairs)[4]) {
  if (condition) *reinterpret_cast<uint4*>(to) = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

inline void group_barrier(int id, int threads) {
  emulation::barrier(id, threads);
}
inline void group_barrier_of_roles(int id, int threads) {
  group_barrier(id, threads);
}

inline int count_on(int* number) {
  return (*number)++;
}

inline float exp2_of(float value) {
  const float result = std::exp2(value);
  return result < FLT_MIN ? 0.0f : result;
}
inline float inverse_of(float value) {
  return 1.0f / value;
}
inline float tanh_of(float value) {
  return std::tanh(value);
}

inline uint32_t pair_mask(uint32_t first, uint32_t second, int byte) {
  const int sign = 8 * byte + 7;
  return (first >> sign & 1 ? 0x0000ffffu : 0) | (second >> sign & 1 ? 0xffff0000u : 0);
}

template <int Byte>
uint32_t pair_mask(uint32_t first, uint32_t second) {
  return pair_mask(first, second, Byte);
}

inline uint32_t pair_of(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  uint32_t pair;
  std::memcpy(&pair, &both, sizeof pair);
  return pair;
}
inline uint32_t multiplied(uint32_t left, uint32_t right) {
  using emulation::high_of, emulation::low_of;
  return pair_of(low_of(left) * low_of(right), high_of(left) * high_of(right));
}
inline uint32_t multiplied_plus(uint32_t left, uint32_t right, uint32_t added) {
  using emulation::high_of, emulation::low_of;
  return pair_of(std::fma(low_of(left), low_of(right), low_of(added)),
                 std::fma(high_of(left), high_of(right), high_of(added)));
}
inline uint32_t negative(uint32_t pair) {
  return pair ^ 0x80008000u;
}

}  // namespace adtrain::kernels

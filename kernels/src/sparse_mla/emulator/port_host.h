#pragma once
// The port on the emulator: the functions of cuda/port_device.h, in the same order.
#include "collectives.h"
#include "halves.h"
#include "sanitizer.h"

#define DEV inline

namespace sparse_mla {

DEV emulator::Machine& hardware() { return *emulator::machine; }

// Where am I.
DEV int thread_index() { return hardware().self->thread; }
DEV int job_index() { return hardware().place.job; }
DEV int row_group() { return hardware().place.row_group; }
DEV int block_rank() { return hardware().self->block; }
DEV int cluster_blocks() { return hardware().place.blocks; }

// Barriers among threads.
DEV void warp_sync() { hardware().sync_warp(); }
DEV void block_sync() { hardware().sync_named(0, hardware().threads()); }
DEV void named_sync(int id, int threads) { hardware().sync_named(id, threads); }
DEV void cluster_sync() { hardware().sync_cluster(); }

// Barriers in shared memory.
DEV void mbarrier_init(Mbarrier* b, int arrivals) { hardware().init(b, arrivals); }
DEV void mbarrier_init_fence() {}
DEV void mbarrier_expect(Mbarrier* b, uint32_t bytes) { hardware().arrive(b, bytes); }
DEV void mbarrier_arrive(Mbarrier* b) { hardware().arrive(b, 0); }
DEV void mbarrier_wait(Mbarrier* b, uint32_t parity) { hardware().wait(b, parity); }
DEV void bulk_load(void* to, const void* from, uint32_t bytes, Mbarrier* b) {
  hardware().copy({static_cast<char*>(to), static_cast<const char*>(from), bytes, b});
}

// Shared memory of another block of the cluster, named by this block's own address.
DEV float remote_load(const float* p, int rank) {
  return *reinterpret_cast<const float*>(hardware().remote(p, sizeof(float), rank));
}
DEV Floats4 remote_load4(const float* p, int rank) {
  return *reinterpret_cast<const Floats4*>(hardware().remote(p, sizeof(Floats4), rank));
}

// Warp collectives.
DEV float shuffle_xor(float value, int lanes) {
  const uint32_t in[2] = {float_bits(value), static_cast<uint32_t>(lanes)};
  return bits_float(hardware().collective("shuffle", in, 2, emulator::shuffle)[0]);
}
DEV uint32_t ballot(bool claim) {
  const uint32_t in[1] = {claim};
  return hardware().collective("ballot", in, 1, emulator::vote)[0];
}
DEV void matrices(uint32_t (&to)[4], const uint16_t* row, const char* instruction,
                  emulator::Work work) {
  hardware().check_shared(row, 16, 16, instruction);
  emulator::sanitizer::reads(row, 16);
  const uint64_t address = reinterpret_cast<uint64_t>(row);
  const uint32_t in[2] = {static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32)};
  const uint32_t* out = hardware().collective(instruction, in, 2, work);
  for (int i = 0; i < 4; i++) to[i] = out[i];
}
DEV void load_matrices(uint32_t (&to)[4], const uint16_t* row) {
  matrices(to, row, "ldmatrix", emulator::load_matrices);
}
DEV void load_matrices_transposed(uint32_t (&to)[4], const uint16_t* row) {
  matrices(to, row, "ldmatrix.trans", emulator::load_matrices_transposed);
}
DEV void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t in[10] = {a[0],
                           a[1],
                           a[2],
                           a[3],
                           b0,
                           b1,
                           float_bits(d[0]),
                           float_bits(d[1]),
                           float_bits(d[2]),
                           float_bits(d[3])};
  const uint32_t* out = hardware().collective("mma", in, 10, emulator::multiply_matrices);
  for (int i = 0; i < 4; i++) d[i] = bits_float(out[i]);
}

// Registers a warpgroup holds from here on.
template <int kCount>
DEV void raise_registers() {}
template <int kCount>
DEV void lower_registers() {}

// Numbers.
DEV uint32_t pack_halves(float low, float high) {
  return half_from_float(low) | static_cast<uint32_t>(half_from_float(high)) << 16;
}
DEV float low_half(uint32_t pair) { return half_to_float(static_cast<uint16_t>(pair)); }
DEV float high_half(uint32_t pair) { return half_to_float(static_cast<uint16_t>(pair >> 16)); }
DEV uint32_t multiply_halves(uint32_t a, uint32_t b) {
  return pack_halves(low_half(a) * low_half(b), high_half(a) * high_half(b));
}
}  // namespace sparse_mla
#include "../cuda/e2m1.h"
namespace sparse_mla {

DEV uint32_t e4m3_pair(uint32_t two_bytes) {
  return half_from_e4m3(static_cast<uint8_t>(two_bytes)) |
         static_cast<uint32_t>(half_from_e4m3(static_cast<uint8_t>(two_bytes >> 8))) << 16;
}
DEV void e2m1_pairs(uint32_t (&pairs)[4], uint32_t eight_codes) {
  for (int i = 0; i < 4; i++)
    pairs[i] = half_from_e2m1(eight_codes >> (8 * i) & 15) |
               static_cast<uint32_t>(half_from_e2m1(eight_codes >> (8 * i + 4) & 15)) << 16;
}
DEV float exp2_of(float x) { return std::exp2(x); }
DEV float log2_of(float x) { return std::log2(x); }
DEV float max_of(float a, float b) { return std::fmax(a, b); }
DEV float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }

}  // namespace sparse_mla

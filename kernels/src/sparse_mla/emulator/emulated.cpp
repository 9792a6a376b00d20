// The host build: the kernel's body on the emulator, with a C face for Python.
#include <algorithm>
#include <cstdio>
#include <mutex>

#include "emulate.h"

using namespace sparse_mla;

// Runs every cluster of the call, one after the other. 0 is success; else `error` says what
// happened.
extern "C" int sparse_mla_emulate(const DecodeCall* call, uint32_t seed,
                                  emulator::Counters* counters, char* error, int error_bytes) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const std::string text = emulate(*call, seed, *counters);
  std::snprintf(error, static_cast<size_t>(error_bytes), "%s", text.c_str());
  return text.empty() ? 0 : 1;
}

// The bytes of shared memory a block asks for.
extern "C" int64_t sparse_mla_shared_bytes(int row_tiles, int split) {
  return shared_bytes(row_tiles, split);
}

// One warp's mma and ldmatrix, for the tests that compare them with other writings of the layouts.
extern "C" void sparse_mla_multiply(const uint32_t (*in)[10], uint32_t (*out)[4]) {
  emulator::Machine one_warp(1, 32, 4096, 0);
  emulator::machine = &one_warp;
  emulator::Warp warp;
  std::copy(&in[0][0], &in[32][0], &warp.in[0][0]);
  emulator::multiply_matrices(warp);
  std::copy(&warp.out[0][0], &warp.out[32][0], &out[0][0]);
}
extern "C" void sparse_mla_load(const uint16_t* matrix, int transposed, uint32_t (*out)[4]) {
  emulator::Machine one_warp(1, 32, 4096, 0);
  emulator::machine = &one_warp;
  emulator::Warp warp;
  for (int lane = 0; lane < 32; lane++) {  // a 16x16 matrix as the left operand's fragments
    const uint64_t row = reinterpret_cast<uint64_t>(left_fragment(matrix, 16, lane));
    warp.in[lane][0] = static_cast<uint32_t>(row);
    warp.in[lane][1] = static_cast<uint32_t>(row >> 32);
  }
  transposed ? emulator::load_matrices_transposed(warp) : emulator::load_matrices(warp);
  std::copy(&warp.out[0][0], &warp.out[32][0], &out[0][0]);
}

// The conversions, for the tests that compare all of them with torch's.
extern "C" float sparse_mla_half_to_float(uint16_t h) { return half_to_float(h); }
extern "C" uint16_t sparse_mla_half_from_float(float x) { return half_from_float(x); }
extern "C" uint16_t sparse_mla_half_from_e4m3(uint8_t byte) { return half_from_e4m3(byte); }
extern "C" uint16_t sparse_mla_half_from_e2m1(uint8_t code) { return half_from_e2m1(code); }
extern "C" void sparse_mla_e2m1_by_arithmetic(uint32_t eight_codes, uint32_t* pairs) {
  uint32_t found[4];
  e2m1_pairs_by_arithmetic(found, eight_codes);
  std::copy(found, found + 4, pairs);
}

#pragma once
// Query rows into shared memory as halves, by the warps that have no rows to unpack. A query row is
// the pair (token of the job, head); each is multiplied by a power of two that brings its largest
// value into [2^14, 2^15), so that every e4m3 and every bfloat16 query is exact in halves (down to
// 2^-31 of the row's largest), whatever its size.
#include "shapes.h"

namespace sparse_mla {

// Two neighbouring query values as floats.
DEV Floats2 query_pair(const void* query, int32_t type, size_t pair) {
  if (type == kE4m3) {
    uint32_t halves = e4m3_pair(static_cast<const uint16_t*>(query)[pair]);
    return {low_half(halves), high_half(halves)};
  }
  uint32_t word = static_cast<const uint32_t*>(query)[pair];
  if (type == kHalf) return {low_half(word), high_half(word)};
  return {bits_float(word << 16), bits_float(word & 0xffff0000u)};
}

// The exponent of a finite magnitude above zero; 0 for zero, infinity and NaN, which stay as they
// are.
DEV int exponent_of(float magnitude) {
  int biased = float_bits(magnitude) >> 23;
  return biased == 0 || biased == 255 ? 0 : biased - 127;
}
DEV float power_of_two(int exponent) {
  return bits_float(static_cast<uint32_t>(exponent + 127) << 23);
}

template <class S>
DEV void load_query(S& sm, const DecodeCall& call, const Job& job, int warp, int lane) {
  constexpr int kPairs = kDims / 2, kPerLane = kPairs / 32, kWarps = kScoreWarps + kAccumulateWarps;
  const int row0 = row_group() * S::kRows, rows = job.tokens * call.heads;
  for (int r = warp; r < S::kRows; r += kWarps) {
    Floats2 value[kPerLane];
    float largest = 0.f;
    const bool is_real = row0 + r < rows;  // the last tile may end in rows of zeros
    const size_t at =
        (static_cast<size_t>(job.first_token) * call.heads + row0 + r) * kPairs + lane;
    for (int i = 0; i < kPerLane; i++) {
      value[i] = is_real ? query_pair(call.query, call.query_type, at + 32 * i) : Floats2{0.f, 0.f};
      largest = max_of(largest, max_of(value[i].x, -value[i].x));
      largest = max_of(largest, max_of(value[i].y, -value[i].y));
    }
    for (int lanes = 16; lanes > 0; lanes /= 2)
      largest = max_of(largest, shuffle_xor(largest, lanes));

    // Two steps of at most 2^100 each: 2^(14 - exponent) alone can be beyond a float.
    const int shift = 14 - exponent_of(largest), half = shift / 2;
    const float up0 = power_of_two(half), up1 = power_of_two(shift - half);
    uint32_t* to = reinterpret_cast<uint32_t*>(sm.query[r]) + lane;
    for (int i = 0; i < kPerLane; i++)
      to[32 * i] = pack_halves(value[i].x * up0 * up1, value[i].y * up0 * up1);
    if (lane == 0)
      sm.factor[r] = call.scale * kLog2E * power_of_two(-half) * power_of_two(half - shift);
  }
  named_sync(1, 32 * kWarps);
}

}  // namespace sparse_mla

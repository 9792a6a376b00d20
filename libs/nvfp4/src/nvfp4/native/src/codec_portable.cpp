// Quantise and dequantise in plain C++: the fallback, and the native code to read first.
//
// Bit-equal to golden.py. Compile it with -ffp-contract=off and without -ffast-math: a fused
// multiply-add in the search's error, or a NaN that is assumed away, moves bytes.
#include <cmath>
#include <cstring>

#include "nvfp4.h"
#include "tables.h"
#include "unpack_portable.h"

namespace {
inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float widen(float value) { return value; }
inline float widen(BFloat16 value) { return float_of(uint32_t{value.bits} << 16); }

inline float widen(Float16 value) {
  uint32_t sign = uint32_t{value.bits} >> 15 << 31, magnitude = value.bits & 0x7fffu;
  uint32_t wide = (magnitude << 13) + ((127 - 15) << 23);
  if (magnitude >= 0x7c00) wide += (127 - 15) << 23;  // infinity and NaN
  if (magnitude < 0x0400) wide = bits_of(static_cast<float>(magnitude) * 0x1p-24f);
  return float_of(wide | sign);
}

// Nearest, ties to even, of a value in [0, 2^22): adding 2^23 leaves no room for a fraction.
inline int nearest(float value) { return static_cast<int>((value + 8388608.f) - 8388608.f); }

uint8_t to_e4m3(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  if (magnitude > 0x7f800000) return NAN_BYTE;
  if (magnitude >= bits_of(MAX_SCALE)) return sign | MAX_SCALE_BYTE;
  if (magnitude < bits_of(0x1p-6f))
    return sign | static_cast<uint8_t>(nearest(std::fabs(value) * 512.f));
  magnitude += 0x7ffff + (magnitude >> 20 & 1);  // nearest even in the third mantissa bit
  return sign | static_cast<uint8_t>((magnitude >> 20) - (120 << 3));
}

// Code of a non-negative value, no NaN: three lines whose least is the code (see golden.py).
inline int e2m1_code(float value) {
  float a = value < 6.f ? value : 6.f;
  int low = nearest(2 * a), middle = nearest(a) + 2, high = nearest(a * .5f) + 4;
  int least = low < middle ? low : middle;
  return least < high ? least : high;
}

struct Encoded {
  uint8_t codes[GROUP];
  float error;
};

Encoded encode(const float* group, uint8_t scale_byte) {
  Encoded result;
  float scale = FLOAT32_TABLES.rope[scale_byte], reciprocal = 1.f / scale, squares[GROUP];
  for (int i = 0; i < GROUP; i++) {
    int code = e2m1_code(std::fabs(group[i] * reciprocal));
    float difference = E2M1_MAGNITUDES[code] * scale - std::fabs(group[i]);
    squares[i] = difference * difference;
    result.codes[i] = static_cast<uint8_t>(code | bits_of(group[i]) >> 31 << 3);
  }
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) squares[i] += squares[i + half];
  result.error = squares[0];
  return result;
}

void quantise_group(const float* group, uint8_t* packed, uint8_t* scale_byte, bool search) {
  uint32_t largest = 0;  // magnitudes order like their bits, NaN above all
  for (int i = 0; i < GROUP; i++) {
    uint32_t magnitude = bits_of(group[i]) & 0x7fffffff;
    largest = largest < magnitude ? magnitude : largest;
  }
  if (largest > 0x7f800000) {
    *scale_byte = NAN_BYTE;
    std::memset(packed, 0, GROUP / 2);
    return;
  }
  float wanted = float_of(largest) * (1.f / 6);
  int first = to_e4m3(wanted < MIN_SCALE ? MIN_SCALE : wanted);
  *scale_byte = static_cast<uint8_t>(first);
  Encoded best = encode(group, *scale_byte);
  for (int step : SEARCH_STEPS) {
    if (!search || step == 0) continue;
    int candidate = first + step;
    candidate = candidate < MIN_SCALE_BYTE ? MIN_SCALE_BYTE : candidate;
    candidate = candidate > MAX_SCALE_BYTE ? MAX_SCALE_BYTE : candidate;
    Encoded other = encode(group, static_cast<uint8_t>(candidate));
    if (other.error < best.error) {
      best = other;
      *scale_byte = static_cast<uint8_t>(candidate);
    }
  }
  for (int i = 0; i < GROUP / 2; i++)
    packed[i] = static_cast<uint8_t>(best.codes[2 * i] | best.codes[2 * i + 1] << 4);
}

template <typename T>
void quantise(const T* values, uint8_t* rows, int64_t count, bool search) {
  for (int64_t r = 0; r < count; r++, values += WIDTH, rows += ROW_BYTES) {
    for (int g = 0; g < GROUPS; g++) {
      float group[GROUP];
      for (int i = 0; i < GROUP; i++) group[i] = widen(values[g * GROUP + i]);
      quantise_group(group, rows + g * GROUP / 2, rows + scale_at(g), search);
    }
    for (int d = 0; d < ROPE; d++) rows[ROPE_AT + d] = to_e4m3(widen(values[LATENT + d]));
  }
}

template <typename T>
void dequantise(const uint8_t* rows, T* values, int64_t count) {
  for (int64_t r = 0; r < count; r++) unpack_row(rows + r * ROW_BYTES, values + r * WIDTH);
}
}  // namespace

extern "C" {
void NVFP4_ENTRY(nvfp4_quantise)(const void* values, int32_t dtype, uint8_t* rows, int64_t count,
                                 int32_t search) {
  switch (dtype) {
    case NVFP4_FLOAT32: return quantise(static_cast<const float*>(values), rows, count, search);
    case NVFP4_BFLOAT16: return quantise(static_cast<const BFloat16*>(values), rows, count, search);
    case NVFP4_FLOAT16: return quantise(static_cast<const Float16*>(values), rows, count, search);
  }
}

void NVFP4_ENTRY(nvfp4_dequantise)(const uint8_t* rows, void* values, int32_t dtype,
                                   int64_t count) {
  switch (dtype) {
    case NVFP4_FLOAT32: return dequantise(rows, static_cast<float*>(values), count);
    case NVFP4_BFLOAT16: return dequantise(rows, static_cast<BFloat16*>(values), count);
    case NVFP4_FLOAT16: return dequantise(rows, static_cast<Float16*>(values), count);
  }
}
}

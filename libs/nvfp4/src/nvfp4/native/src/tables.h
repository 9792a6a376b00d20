// Decoding by lookup: every product of a scale byte and an e2m1 code, in each output type.
//
// A product needs 6 significant bits and lies between 2^-10 and 2688, so it is exact in all three
// types. A NaN scale gives the type's quiet NaN. Filled by the compiler; nothing runs at load time.
#pragma once
#include "nvfp4.h"

namespace {
struct BFloat16 { uint16_t bits; };
struct Float16 { uint16_t bits; };

constexpr float E2M1_MAGNITUDES[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};

constexpr float e4m3_value(int byte) {
  int exponent = (byte >> 3) & 15, mantissa = byte & 7;
  if ((byte & 127) == NAN_BYTE) return __builtin_nanf("");
  float value = exponent ? 8 + mantissa : mantissa;
  for (int e = exponent ? exponent : 1; e < 10; e++) value *= .5f;
  for (int e = exponent; e > 10; e--) value *= 2;
  return byte & 128 ? -value : value;
}

constexpr void narrow(float value, float* to) { *to = value; }

constexpr void narrow(float value, BFloat16* to) {
  to->bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
}

// Only for what a row can decode to: zero, NaN and normal float16 values with spare mantissa bits.
constexpr void narrow(float value, Float16* to) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value), magnitude = bits & 0x7fffffff;
  uint32_t half = magnitude == 0 ? 0 : (magnitude >> 13) - ((127 - 15) << 10);
  if (magnitude > 0x7f800000) half = 0x7e00;
  to->bits = static_cast<uint16_t>(half | (bits >> 31 << 15));
}

template <typename T>
struct Tables {
  alignas(64) T latent[256][16];  // by scale byte and code
  alignas(64) T rope[256];        // by e4m3 byte

  constexpr Tables() : latent(), rope() {
    for (int byte = 0; byte < 256; byte++) {
      float scale = e4m3_value(byte);
      narrow(scale, &rope[byte]);
      for (int code = 0; code < 8; code++) {
        float product = scale * E2M1_MAGNITUDES[code];
        narrow(product, &latent[byte][code]);
        // The quiet NaN has no sign, whatever code it meets.
        narrow(scale != scale ? product : -product, &latent[byte][code + 8]);
      }
    }
  }
};

constexpr Tables<float> FLOAT32_TABLES;
constexpr Tables<BFloat16> BFLOAT16_TABLES;
constexpr Tables<Float16> FLOAT16_TABLES;

inline const Tables<float>& tables_of(const float*) { return FLOAT32_TABLES; }
inline const Tables<BFloat16>& tables_of(const BFloat16*) { return BFLOAT16_TABLES; }
inline const Tables<Float16>& tables_of(const Float16*) { return FLOAT16_TABLES; }
}  // namespace

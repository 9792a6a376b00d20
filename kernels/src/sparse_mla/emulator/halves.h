#pragma once
// 16-bit floats and the row's small formats for the host build, in integer arithmetic: the same
// bits on every compiler. Tests compare all 65,536 halves, all 256 e4m3 bytes and all 16 e2m1 codes
// with torch.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace sparse_mla {

inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, exponent = h >> 10 & 31,
                 fraction = h & 1023;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

inline uint16_t half_from_float(float x) {  // nearest, ties to even
  const uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;          // NaN, as the device's conversion gives it
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                       // below 2^-14: a multiple of 2^-24
    return sign | static_cast<uint16_t>(std::lrint(bits_float(magnitude) * 0x1p24f));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

inline uint16_t half_from_e4m3(uint8_t byte) {
  const uint16_t sign = (byte & 0x80) << 8, exponent = byte >> 3 & 15, fraction = byte & 7;
  if ((byte & 0x7f) == 0x7f) return 0x7fff;
  if (exponent > 0) return sign | (exponent + 8) << 10 | fraction << 7;
  return sign | half_from_float(static_cast<float>(fraction) * 0x1p-9f);
}

inline uint16_t half_from_e2m1(uint8_t code) {
  static constexpr uint16_t magnitudes[8] = {0,      0x3800, 0x3c00, 0x3e00,
                                             0x4000, 0x4200, 0x4400, 0x4600};
  return (code & 8) << 12 | magnitudes[code & 7];
}

}  // namespace sparse_mla

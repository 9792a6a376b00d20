// The compiler's own vectors at the width of the instruction set this file is compiled for.
#pragma once
#include "nvfp4.h"

namespace {
#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
constexpr int LANES = VECTOR_BYTES / 4;

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t IntVector __attribute__((vector_size(VECTOR_BYTES)));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Vector splat(float value) { return Vector{} + value; }

// 2^x for x below 128, to float32's precision; NaN stays NaN and what is below 2^-126 becomes it.
inline Vector exp2_of(Vector x) {
  const Vector lowest = splat(-126.f), shift = splat(12582912.f);  // 1.5 * 2^23: rounds to whole
  x = x < lowest ? lowest : x;
  Vector shifted = x + shift;
  Vector f = x - (shifted - shift);  // [-0.5, 0.5]: ln(2)^k / k! of 2^f up to k = 7 leave 5e-9
  Vector y = splat(1.52527338e-5f);
  y = y * f + 1.54035304e-4f;
  y = y * f + 1.33335581e-3f;
  y = y * f + 9.61812911e-3f;
  y = y * f + 5.55041087e-2f;
  y = y * f + 2.40226507e-1f;
  y = y * f + 6.93147181e-1f;
  y = y * f + 1.f;
  return y * (Vector)(((IntVector)shifted << 23) + 0x3f800000);
}
}  // namespace

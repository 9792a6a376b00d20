// Quantise and dequantise with AVX-512 (F, BW, VL, DQ): one group of 16 values is one register.
//
// Bit-equal to golden.py and to codec_portable.cpp, with the same warning about compiler flags.
#include <immintrin.h>

#include "nvfp4.h"
#include "tables.h"
#include "unpack_avx512.h"

namespace {
inline __m512 load16(const float* from) { return _mm512_loadu_ps(from); }

inline __m512 load16(const BFloat16* from) {
  __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

inline __m512 load16(const Float16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline __m512i magnitude_bits(__m512 value) {
  return _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7fffffff));
}

// 16 floats to e4m3 bytes in the low byte of each lane: nearest even, saturating, NaN 0x7f.
inline __m512i to_e4m3(__m512 value) {
  const __m512i infinity = _mm512_set1_epi32(0x7f800000);
  __m512i magnitude = magnitude_bits(value);
  __mmask16 is_nan = _mm512_cmpgt_epi32_mask(magnitude, infinity);
  __m512i capped = _mm512_min_epi32(magnitude, _mm512_castps_si512(_mm512_set1_ps(MAX_SCALE)));
  const __m512i smallest_normal = _mm512_castps_si512(_mm512_set1_ps(0x1p-6f));
  __mmask16 is_small = _mm512_cmplt_epi32_mask(capped, smallest_normal);

  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(capped, 20), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(capped, _mm512_set1_epi32(0x7ffff)), odd);
  __m512i code = _mm512_sub_epi32(_mm512_srli_epi32(rounded, 20), _mm512_set1_epi32(120 << 3));
  __m512 steps = _mm512_mul_ps(_mm512_castsi512_ps(capped), _mm512_set1_ps(512.f));
  code = _mm512_mask_cvtps_epi32(code, is_small, steps);

  __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(value), 31);
  code = _mm512_or_si512(code, _mm512_slli_epi32(sign, 7));
  return _mm512_mask_mov_epi32(code, is_nan, _mm512_set1_epi32(NAN_BYTE));
}

// Codes of 16 non-negative values, no NaN: the least of three rounded lines (see golden.py).
inline __m512i e2m1_codes(__m512 value) {
  __m512 a = _mm512_min_ps(value, _mm512_set1_ps(6.f));
  __m512i low = _mm512_cvtps_epi32(_mm512_add_ps(a, a));
  __m512i middle = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(2));
  __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(.5f)));
  high = _mm512_add_epi32(high, _mm512_set1_epi32(4));
  return _mm512_min_epi32(low, _mm512_min_epi32(middle, high));
}

inline __m512i encode(__m512 magnitude, float scale) {
  return e2m1_codes(_mm512_mul_ps(magnitude, _mm512_set1_ps(1.f / scale)));
}

inline float squared_error(__m512 magnitude, __m512i codes, float scale) {
  const __m512 values = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, .5f, 1, 1.5f, 2, 3, 4, 6);
  __m512 decoded = _mm512_mul_ps(_mm512_permutexvar_ps(codes, values), _mm512_set1_ps(scale));
  __m512 difference = _mm512_sub_ps(decoded, magnitude);
  __m512 squares = _mm512_mul_ps(difference, difference);
  __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(squares), _mm512_extractf32x8_ps(squares, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The better scale byte of a finite group; `codes` is what the one given makes of it.
inline uint8_t search(__m512 magnitude, uint8_t first, __m512i* codes) {
  float least = squared_error(magnitude, *codes, FLOAT32_TABLES.rope[first]);
  uint8_t best = first;
  for (int step : SEARCH_STEPS) {
    if (step == 0) continue;
    int candidate = first + step;
    candidate = candidate < MIN_SCALE_BYTE ? MIN_SCALE_BYTE : candidate;
    candidate = candidate > MAX_SCALE_BYTE ? MAX_SCALE_BYTE : candidate;
    float scale = FLOAT32_TABLES.rope[candidate];
    __m512i others = encode(magnitude, scale);
    float error = squared_error(magnitude, others, scale);
    if (!(error < least)) continue;
    least = error;
    best = static_cast<uint8_t>(candidate);
    *codes = others;
  }
  return best;
}

// Sixteen codes of a lane each to eight bytes, the even element low.
inline void store_codes(uint8_t* to, __m512i codes) {
  __m128i bytes = _mm512_cvtepi32_epi8(codes);
  __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x1001));  // low + 16 * high
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(pairs, pairs));
}

template <typename T>
void quantise(const T* values, uint8_t* rows, int64_t count, bool searches) {
  const __m512i infinity = _mm512_set1_epi32(0x7f800000);
  for (int64_t r = 0; r < count; r++, values += WIDTH, rows += ROW_BYTES) {
    // Scales of all groups by amax / 6, 16 at a time.
    alignas(64) uint32_t largest[GROUPS];
    for (int g = 0; g < GROUPS; g++)
      largest[g] = _mm512_reduce_max_epu32(magnitude_bits(load16(values + g * GROUP)));
    alignas(16) uint8_t scales[GROUPS];
    for (int g = 0; g < GROUPS; g += 16) {
      __m512i bits = _mm512_load_si512(largest + g);
      __mmask16 is_nan = _mm512_cmpgt_epi32_mask(bits, infinity);
      __m512 wanted = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(1.f / 6));
      __m512i bytes = to_e4m3(_mm512_max_ps(wanted, _mm512_set1_ps(MIN_SCALE)));
      bytes = _mm512_mask_mov_epi32(bytes, is_nan, _mm512_set1_epi32(NAN_BYTE));
      _mm_store_si128(reinterpret_cast<__m128i*>(scales + g), _mm512_cvtepi32_epi8(bytes));
    }

    // Codes.
    for (int g = 0; g < GROUPS; g++) {
      uint8_t scale_byte = scales[g];
      __m512i codes = _mm512_setzero_si512();
      if (scale_byte != NAN_BYTE) {
        __m512 group = load16(values + g * GROUP), magnitude = _mm512_abs_ps(group);
        codes = encode(magnitude, FLOAT32_TABLES.rope[scale_byte]);
        if (searches) scale_byte = search(magnitude, scale_byte, &codes);
        __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(group), 31);
        codes = _mm512_or_si512(codes, _mm512_slli_epi32(sign, 3));
      }
      rows[scale_at(g)] = scale_byte;
      store_codes(rows + g * GROUP / 2, codes);
    }

    // Rope.
    for (int d = 0; d < ROPE; d += 16) {
      __m128i bytes = _mm512_cvtepi32_epi8(to_e4m3(load16(values + LATENT + d)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rows + ROPE_AT + d), bytes);
    }
  }
}

// Above this many bytes the values are written past the caches: they would not stay in L2, and
// lines that are overwritten whole need not be read first. Twice as fast from 16 MB on, slower
// below 2 MB.
constexpr int64_t STREAM_BYTES = 4 << 20;

template <typename T>
void dequantise(const uint8_t* rows, T* values, int64_t count) {
  constexpr int64_t BYTES = WIDTH * sizeof(T);
  if (count * BYTES < STREAM_BYTES || reinterpret_cast<uintptr_t>(values) % 64) {
    for (int64_t r = 0; r < count; r++) unpack_row(rows + r * ROW_BYTES, values + r * WIDTH);
    return;
  }
  for (int64_t r = 0; r < count; r++) unpack_row<true>(rows + r * ROW_BYTES, values + r * WIDTH);
  _mm_sfence();
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

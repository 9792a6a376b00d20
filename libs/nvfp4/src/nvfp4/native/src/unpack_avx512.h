// One row unpacked with AVX-512: shared by the codec and by both attention paths that have it.
#pragma once
#include <immintrin.h>

#include "nvfp4.h"
#include "tables.h"

namespace {
// A group is a permute of its scale's sixteen products. The permute looks at the low four bits of a
// lane only, so the byte's other nibble may stay above them.
inline __m512 unpack_group(const uint8_t* row, int group) {
  __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + group * GROUP / 2));
  __m512i bytes = _mm512_cvtepu8_epi64(packed);
  __m512i codes = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
  return _mm512_permutexvar_ps(codes, _mm512_load_ps(FLOAT32_TABLES.latent[row[scale_at(group)]]));
}

// Two groups of a 16-bit type: 32 products in one register, bit 4 of a code chooses the group.
template <typename Half>
inline __m512i unpack_two_groups(const uint8_t* row, int group, const Tables<Half>& tables) {
  const __m512i nibble = _mm512_set1_epi32(0x000f000f);
  const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + group * GROUP / 2));
  __m512i bytes = _mm512_cvtepu8_epi32(packed);
  __m512i codes = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  codes = _mm512_or_si512(_mm512_and_si512(codes, nibble), second);

  const void* low = tables.latent[row[scale_at(group)]];
  const void* high = tables.latent[row[scale_at(group + 1)]];
  __m256i products = _mm256_load_si256(static_cast<const __m256i*>(low));
  __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(products),
                                    _mm256_load_si256(static_cast<const __m256i*>(high)), 1);
  return _mm512_permutexvar_epi16(codes, both);
}

// Rope: e4m3's exponent and mantissa moved to the wider type's places and its bias added. That fits
// all but the subnormals, which come from the table, and NaN.
inline __m512i unpack_rope(const uint8_t* row, int d, const Tables<float>& tables) {
  __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + ROPE_AT + d));
  __m512i byte = _mm512_cvtepu8_epi32(packed);
  __m512i magnitude = _mm512_and_si512(byte, _mm512_set1_epi32(0x7f));
  __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(8));
  __mmask16 is_nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(NAN_BYTE));
  __m512i bits = _mm512_slli_epi32(magnitude, 20);
  bits = _mm512_add_epi32(bits, _mm512_set1_epi32((127 - 7) << 23));
  const __m512i small = _mm512_load_si512(tables.rope);
  bits = _mm512_mask_permutexvar_epi32(bits, is_subnormal, magnitude, small);
  bits = _mm512_or_si512(bits, _mm512_slli_epi32(_mm512_srli_epi32(byte, 7), 31));
  return _mm512_mask_mov_epi32(bits, is_nan, _mm512_set1_epi32(0x7fc00000));
}

struct Fields { int mantissa_shift, bias, nan; };
constexpr Fields fields_of(const BFloat16*) { return {7 - 3, (127 - 7) << 7, 0x7fc0}; }
constexpr Fields fields_of(const Float16*) { return {10 - 3, (15 - 7) << 10, 0x7e00}; }

template <typename Half>
inline __m512i unpack_rope(const uint8_t* row, int d, const Tables<Half>& tables) {
  constexpr Fields fields = fields_of(static_cast<const Half*>(nullptr));
  __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + ROPE_AT + d));
  __m512i byte = _mm512_cvtepu8_epi16(packed);
  __m512i magnitude = _mm512_and_si512(byte, _mm512_set1_epi16(0x7f));
  __mmask32 is_subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  __mmask32 is_nan = _mm512_cmpeq_epu16_mask(magnitude, _mm512_set1_epi16(NAN_BYTE));
  __m512i bits = _mm512_slli_epi16(magnitude, fields.mantissa_shift);
  bits = _mm512_add_epi16(bits, _mm512_set1_epi16(fields.bias));
  const __m512i small = _mm512_load_si512(tables.rope);
  bits = _mm512_mask_permutexvar_epi16(bits, is_subnormal, magnitude, small);
  bits = _mm512_or_si512(bits, _mm512_slli_epi16(_mm512_srli_epi16(byte, 7), 15));
  return _mm512_mask_mov_epi16(bits, is_nan, _mm512_set1_epi16(fields.nan));
}

// Past the caches or into them; past them the place must be a multiple of 64 bytes.
template <bool STREAMS>
inline void store(void* to, __m512i value) {
  if (STREAMS)
    _mm512_stream_si512(static_cast<__m512i*>(to), value);
  else
    _mm512_storeu_si512(to, value);
}

// Unrolled, because the places of the scales are then constants: a third of the time.
template <bool STREAMS = false>
inline void unpack_row(const uint8_t* row, float* to) {
#pragma GCC unroll 32
  for (int g = 0; g < GROUPS; g++)
    store<STREAMS>(to + g * GROUP, _mm512_castps_si512(unpack_group(row, g)));
  for (int d = 0; d < ROPE; d += 16)
    store<STREAMS>(to + LATENT + d, unpack_rope(row, d, FLOAT32_TABLES));
}

template <bool STREAMS = false, typename Half>
inline void unpack_row(const uint8_t* row, Half* to) {
  const Tables<Half>& tables = tables_of(to);
#pragma GCC unroll 16
  for (int g = 0; g < GROUPS; g += 2)
    store<STREAMS>(to + g * GROUP, unpack_two_groups(row, g, tables));
  for (int d = 0; d < ROPE; d += 32) store<STREAMS>(to + LATENT + d, unpack_rope(row, d, tables));
}
}  // namespace

// Attention with AMX: bfloat16 tiles, float32 sums.
//
// A row's values are exact in bfloat16. Float32 queries are split into two bfloat16 parts, and so
// are the weights: 16 bits of each take part, which leaves an error of some 1e-6. A tile is 16 rows
// of 64 bytes; TDPBF16PS multiplies A [16][32] by B [16 pairs][16][2] and adds to C [16][16]
// floats.
//
// Rows are unpacked two at a time and stored twice: as keys, of which a part of 16 rows lies in L1
// and is A of the scores; and with their values side by side, which is B of the weighted sums and
// lies in L2 until the block's weights are known.
#include <immintrin.h>

#include "attend.h"
#include "nvfp4.h"
#include "tables.h"

namespace {
constexpr int TILE = 16, DEPTH = 32;       // rows of a tile; its bfloat16 columns
constexpr int TILE_HALVES = TILE * DEPTH;  // bfloat16 values in a tile of 1 KB
constexpr int TILE_FLOATS = TILE * TILE;
constexpr int LATENT_CHUNKS = LATENT / DEPTH, CHUNKS = WIDTH / DEPTH;
constexpr int PART = 4, PART_HALVES = PART * DEPTH;  // chunks of keys unpacked at a time
constexpr int PARTS = LATENT_CHUNKS / PART + 1;      // the last is the rope
constexpr int MOST_TILES = 4;  // of heads whose scores are added up together
constexpr int PAIR = 2 * LATENT + DEPTH;  // values of two rows, and a gap
static_assert(LANES == TILE && GROUP == TILE);

struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig ALL_TILES_FULL;

// GCC's own intrinsics hide what they read: _tile_loadconfig names 8 bytes of the 64, and a tile
// load no memory at all, so that stores before it could be moved behind it.
inline void load_config() { asm volatile("ldtilecfg %0" ::"m"(ALL_TILES_FULL)); }
inline void finish_stores() { asm volatile("" ::: "memory"); }

alignas(16) constexpr uint8_t ZERO_ROW[ROW_BYTES] = {};  // stands for the keys that pad a block

// What unpacking costs is the two ports that shuffle and shift 64 bytes. So codes are not put in
// order: each 32 values lie as their two groups' quarters in turn, and queries are laid out alike.
struct Order {
  alignas(64) uint8_t shifts[64];  // by byte: where in its group's 64 bits a code begins
  alignas(64) uint16_t second[32];  // by value: 16 in the second group, else 0
  uint8_t latent_place[TILE];  // by pair of values in a chunk: where it is put
  alignas(64) uint8_t rope_upper[128], rope_lower[128];  // bfloat16's bytes of an e4m3 magnitude

  constexpr Order() : shifts(), second(), latent_place(), rope_upper(), rope_lower() {
    for (int i = 0; i < 32; i++) {
      int quarter = i / 8, group = i / 4 % 2, value = quarter * 4 + i % 4;
      shifts[2 * i] = static_cast<uint8_t>(4 * value);
      second[i] = static_cast<uint16_t>(16 * group);
      latent_place[(group * GROUP + value) / 2] = static_cast<uint8_t>(i / 2);
    }
    for (int byte = 0; byte < 128; byte++) {
      BFloat16 value{};
      narrow(e4m3_value(byte), &value);
      rope_upper[byte] = static_cast<uint8_t>(value.bits >> 8);
      rope_lower[byte] = static_cast<uint8_t>(value.bits & 255);
    }
  }
};
constexpr Order ORDER;

// Rope goes by 16 in turn: the first eight of each to the first chunk, the others to the second.
constexpr int place(int pair) {
  if (pair < LATENT / 2) return pair / TILE * TILE + ORDER.latent_place[pair % TILE];
  int rope = pair - LATENT / 2;
  return LATENT / 2 + rope / 4 % 2 * TILE + rope / 8 * 4 + rope % 4;
}

// Values 32 * chunk to 32 * chunk + 31 of the latent, in the order above.
inline __m512i unpack_chunk(const uint8_t* row, int chunk) {
  const __m512i shifts = _mm512_load_si512(ORDER.shifts), nibble = _mm512_set1_epi16(15);
  const __m512i second = _mm512_load_si512(ORDER.second);
  const __m128i* packed = reinterpret_cast<const __m128i*>(row) + chunk;
  __m512i codes = _mm512_broadcast_i32x4(_mm_load_si128(packed));
  codes = _mm512_multishift_epi64_epi8(shifts, codes);
  codes = _mm512_ternarylogic_epi64(codes, nibble, second, 0xea);  // codes & nibble | second

  const void* low = BFLOAT16_TABLES.latent[row[scale_at(2 * chunk)]];
  const void* high = BFLOAT16_TABLES.latent[row[scale_at(2 * chunk + 1)]];
  __m512i products = _mm512_castsi256_si512(_mm256_load_si256(static_cast<const __m256i*>(low)));
  products = _mm512_inserti64x4(products, _mm256_load_si256(static_cast<const __m256i*>(high)), 1);
  return _mm512_permutexvar_epi16(codes, products);
}

// NaN keeps its sign here: a sum that it reaches is NaN either way.
inline void unpack_rope(const uint8_t* row, BFloat16* to) {
  __m512i bytes = _mm512_loadu_si512(row + ROPE_AT);
  __m512i upper = _mm512_permutex2var_epi8(_mm512_load_si512(ORDER.rope_upper), bytes,
                                           _mm512_load_si512(ORDER.rope_upper + 64));
  __m512i lower = _mm512_permutex2var_epi8(_mm512_load_si512(ORDER.rope_lower), bytes,
                                           _mm512_load_si512(ORDER.rope_lower + 64));
  const __m512i sign = _mm512_set1_epi8(-128);
  upper = _mm512_ternarylogic_epi64(bytes, sign, upper, 0xea);
  _mm512_store_si512(to, _mm512_unpacklo_epi8(lower, upper));
  _mm512_store_si512(to + DEPTH, _mm512_unpackhi_epi8(lower, upper));
}

// 128 latent values of two rows as keys, in that order, and side by side as values: [group][16][2].
inline void unpack_part(const uint8_t* one, const uint8_t* other, int part, BFloat16* keys,
                        BFloat16* values) {
  values += part * PART * 2 * DEPTH;
#pragma GCC unroll 4
  for (int i = 0; i < PART; i++) {
    __m512i a = unpack_chunk(one, part * PART + i), b = unpack_chunk(other, part * PART + i);
    _mm512_store_si512(keys + i * DEPTH, a);
    _mm512_store_si512(keys + PART_HALVES + i * DEPTH, b);
    _mm512_store_si512(values + 2 * i * DEPTH, _mm512_unpacklo_epi16(a, b));
    _mm512_store_si512(values + (2 * i + 1) * DEPTH, _mm512_unpackhi_epi16(a, b));
  }
}

// The bfloat16 nearest to each of 16 floats, as a float.
inline __m512 rounded(__m512 value) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  __m512i bits = _mm512_add_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, upper));
}

// 32 floats as the bfloat16 nearest to each, and what that leaves as another.
inline void split(__m512 first, __m512 second, __m512i* upper, __m512i* lower) {
  __m512 a = rounded(first), b = rounded(second);
  *upper = (__m512i)_mm512_cvtne2ps_pbh(b, a);
  *lower = (__m512i)_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, b), _mm512_sub_ps(first, a));
}

// 16 x 16 times 32 bits, rows to columns.
inline void transpose(__m512 rows[16]) {
  __m512 pairs[16], quads[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // quads[i + c]: column c of each four, of rows i to i + 3
    quads[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  for (int c = 0; c < 4; c++) {
    __m512 low_even = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x88);
    __m512 low_odd = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xdd);
    __m512 high_even = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x88);
    __m512 high_odd = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xdd);
    rows[c] = _mm512_shuffle_f32x4(low_even, high_even, 0x88);
    rows[4 + c] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
    rows[8 + c] = _mm512_shuffle_f32x4(low_even, high_even, 0xdd);
    rows[12 + c] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd);
  }
}

class AmxEngine {
 public:
  static constexpr int BLOCK = 128;  // keys at a time: their values are 132 KB and stay in L2

  static size_t scratch_bytes(int tiles) {
    size_t count = static_cast<size_t>(tiles);
    return aligned(count * 2 * TILE * WIDTH * 2) + aligned(count * TILE * LATENT * 4) +
           aligned(2 * TILE * PART_HALVES * 2) + aligned(BLOCK / 2 * PAIR * 2) +
           aligned(count * BLOCK * TILE * 4) + aligned(count * BLOCK * TILE * 2 * 2);
  }

  AmxEngine(Scratch& scratch, int tiles)
      : queries_(scratch.take<BFloat16>(static_cast<size_t>(tiles) * 2 * TILE * WIDTH)),
        sums_(scratch.take<float>(static_cast<size_t>(tiles) * TILE * LATENT)),
        keys_(scratch.take<BFloat16>(2 * TILE * PART_HALVES)),
        values_(scratch.take<BFloat16>(BLOCK / 2 * PAIR)),
        scores_(scratch.take<float>(static_cast<size_t>(tiles) * BLOCK * TILE)),
        weights_(scratch.take<BFloat16>(static_cast<size_t>(tiles) * BLOCK * TILE * 2)) {
    load_config();
  }
  ~AmxEngine() { _tile_release(); }
  AmxEngine(const AmxEngine&) = delete;
  AmxEngine& operator=(const AmxEngine&) = delete;

  // Queries as B by [tile][part][pair of dims][head][2], the heads left over zero; bfloat16 has one
  // part.
  void begin(const nvfp4_attention& job, int64_t row, int heads) {
    parts_ = job.query_dtype == NVFP4_BFLOAT16 ? 1 : 2;
    tiles_ = (heads + TILE - 1) / TILE;
    for (int tile = 0; tile < tiles_; tile++) {
      int rest = heads - tile * TILE, here = rest < TILE ? rest : TILE;
      BFloat16* to = queries_ + tile * 2 * TILE * WIDTH;
      for (int d = 0; d < WIDTH; d += DEPTH) lay_queries(job, row + tile * TILE, here, d, to);
    }
    std::memset(sums_, 0, static_cast<size_t>(tiles_) * TILE * LATENT * sizeof(float));
  }

  // Unpacks the rows of a block and multiplies them with all queries; asks for those of the next.
  void multiply(const uint8_t* rows, const int32_t* kept, int keys, int64_t ahead) {
    for (int j = 0; j < padded(keys); j++)
      rows_[j] = j < keys ? rows + int64_t{kept[j]} * ROW_BYTES : ZERO_ROW;
    for (int64_t j = BLOCK; j < 2 * BLOCK && j < ahead; j++)
      for (int at = 0; at < ROW_BYTES; at += 64)
        __builtin_prefetch(rows + int64_t{kept[j]} * ROW_BYTES + at, 0, 2);
    for (int tile = 0; tile < tiles_; tile += MOST_TILES) multiply_tiles(tile, padded(keys));
  }

  // [keys][16 heads].
  float* scores(int tile) { return scores_ + tile * BLOCK * TILE; }

  // Sums lie by [tile][group of 16 dims][head][16].
  void rescale(int tile, int lane, float factor) {
    float* sums = sums_ + tile * TILE * LATENT + lane * TILE;
    for (int group = 0; group < GROUPS; group++, sums += TILE_FLOATS)
      for (int i = 0; i < TILE; i++) sums[i] *= factor;
  }

  // Adds the block's values by the weights that `scores` have become.
  void accumulate(int keys) {
    for (int tile = 0; tile < tiles_; tile++) {
      float* scores = scores_ + tile * BLOCK * TILE;
      for (int j = keys; j < padded(keys); j++)
        _mm512_store_ps(scores + j * TILE, _mm512_setzero_ps());
      for (int j = 0; j < keys; j += DEPTH)
        split_weights(scores + j * TILE, weights_ + (tile * BLOCK + j) * TILE * 2);
    }
    for (int group = 0; group < GROUPS; group += 4)
      for (int tile = 0; tile < tiles_; tile++) accumulate(group, tile, keys);
  }

  // Sums of a head in the order of the latent.
  const float* sums(int head) {
    const float* from = sums_ + head / TILE * TILE * LATENT + head % TILE * TILE;
    for (int group = 0; group < GROUPS; group++)
      std::memcpy(in_order_ + group * GROUP, from + group * TILE_FLOATS, GROUP * sizeof(float));
    return in_order_;
  }

 private:
  static int padded(int keys) { return (keys + DEPTH - 1) / DEPTH * DEPTH; }

  // Values d to d + 31 of up to 16 heads: pairs become rows, and each goes to its place.
  void lay_queries(const nvfp4_attention& job, int64_t row, int heads, int d, BFloat16* to) {
    __m512 upper[TILE] = {}, lower[TILE] = {};
    for (int head = 0; head < heads; head++) {
      int64_t from = (row + head) * WIDTH + d;
      if (parts_ == 1) {
        upper[head] = _mm512_loadu_ps(static_cast<const BFloat16*>(job.queries) + from);
      } else {
        const float* query = static_cast<const float*>(job.queries) + from;
        __m512i parts[2];
        split(_mm512_loadu_ps(query), _mm512_loadu_ps(query + TILE), &parts[0], &parts[1]);
        upper[head] = _mm512_castsi512_ps(parts[0]);
        lower[head] = _mm512_castsi512_ps(parts[1]);
      }
    }
    transpose(upper);
    transpose(lower);
    for (int i = 0; i < TILE; i++) {
      BFloat16* pair = to + place(d / 2 + i) * TILE * 2;
      _mm512_store_ps(pair, upper[i]);
      if (parts_ == 2) _mm512_store_ps(pair + TILE * WIDTH, lower[i]);
    }
  }

  // Scores of all keys with up to four tiles of heads from `tile` on. A part is unpacked before the
  // one ahead of it is multiplied: a tile that was just stored would be waited for.
  void multiply_tiles(int tile, int keys) {
    int steps = keys / TILE * PARTS;
    unpack_step(0);
    for (int step = 0; step < steps; step++) {
      if (step + 1 < steps) unpack_step(step + 1);
      finish_stores();
      int part = step % PARTS, left = tiles_ - tile;
      if (part == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      const BFloat16* keys = keys_ + step % 2 * TILE * PART_HALVES;
      const BFloat16* queries = queries_ + (tile * 2 * CHUNKS + part * PART) * TILE_HALVES;
      for (int i = 0; i < (part < PARTS - 1 ? PART : ROPE / DEPTH); i++) {
        _tile_loadd(4, keys + i * DEPTH, PART_HALVES * 2);
        add_product<0>(queries + i * TILE_HALVES);
        if (left > 1) add_product<1>(queries + i * TILE_HALVES);
        if (left > 2) add_product<2>(queries + i * TILE_HALVES);
        if (left > 3) add_product<3>(queries + i * TILE_HALVES);
      }
      if (part < PARTS - 1) continue;
      float* to = scores_ + (tile * BLOCK + step / PARTS * TILE) * TILE;
      _tile_stored(0, to, 64);
      if (left > 1) _tile_stored(1, to + BLOCK * TILE, 64);
      if (left > 2) _tile_stored(2, to + 2 * BLOCK * TILE, 64);
      if (left > 3) _tile_stored(3, to + 3 * BLOCK * TILE, 64);
    }
  }

  // One part of 16 keys, into one of two places in turn.
  void unpack_step(int step) {
    int part = step % PARTS, first = step / PARTS * TILE;
    BFloat16* to = keys_ + step % 2 * TILE * PART_HALVES;
    for (int j = first; j < first + TILE; j += 2, to += 2 * PART_HALVES) {
      if (part < PARTS - 1) {
        unpack_part(rows_[j], rows_[j + 1], part, to, values_ + j / 2 * PAIR);
      } else {
        unpack_rope(rows_[j], to);
        unpack_rope(rows_[j + 1], to + PART_HALVES);
      }
    }
  }

  // Adds the keys' product with one chunk of the queries of the N-th tile from here. Tile numbers
  // are part of an instruction's text: a template's argument cannot stand there.
  template <int N>
  void add_product(const BFloat16* queries) {
    queries += N * 2 * CHUNKS * TILE_HALVES;
    for (int part = 0; part < parts_; part++, queries += CHUNKS * TILE_HALVES) {
      _tile_loadd(5, queries, 64);
      if constexpr (N == 0) _tile_dpbf16ps(0, 4, 5);
      if constexpr (N == 1) _tile_dpbf16ps(1, 4, 5);
      if constexpr (N == 2) _tile_dpbf16ps(2, 4, 5);
      if constexpr (N == 3) _tile_dpbf16ps(3, 4, 5);
    }
  }

  // Adds the block to a tile's sums of four groups.
  void accumulate(int group, int tile, int keys) {
    float* sums = sums_ + (tile * GROUPS + group) * TILE_FLOATS;
    const BFloat16* weights = weights_ + tile * BLOCK * TILE * 2;
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + TILE_FLOATS, 64);
    _tile_loadd(2, sums + 2 * TILE_FLOATS, 64);
    _tile_loadd(3, sums + 3 * TILE_FLOATS, 64);
    for (int j = 0; j < keys; j += DEPTH) {
      const BFloat16* values = values_ + j / 2 * PAIR + group * DEPTH;
      _tile_loadd(4, weights, 64);
      _tile_loadd(5, weights + TILE_HALVES, 64);
      _tile_loadd(6, values, PAIR * 2);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(0, 5, 6);
      _tile_loadd(7, values + DEPTH, PAIR * 2);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(1, 5, 7);
      _tile_loadd(6, values + 2 * DEPTH, PAIR * 2);
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      _tile_loadd(7, values + 3 * DEPTH, PAIR * 2);
      _tile_dpbf16ps(3, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
      weights += DEPTH * TILE * 2;
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + TILE_FLOATS, 64);
    _tile_stored(2, sums + 2 * TILE_FLOATS, 64);
    _tile_stored(3, sums + 3 * TILE_FLOATS, 64);
  }

  // Weights of 32 keys, [key][head], as A: [part][head][key].
  static void split_weights(const float* scores, BFloat16* to) {
    __m512 first[TILE], second[TILE];
    for (int i = 0; i < TILE; i++) {
      first[i] = _mm512_load_ps(scores + i * TILE);
      second[i] = _mm512_load_ps(scores + (TILE + i) * TILE);
    }
    transpose(first);
    transpose(second);
    for (int head = 0; head < TILE; head++, to += DEPTH) {
      __m512i upper, lower;
      split(first[head], second[head], &upper, &lower);
      _mm512_store_si512(to, upper);
      _mm512_store_si512(to + TILE_HALVES, lower);
    }
  }

  BFloat16* queries_;
  float* sums_;
  BFloat16 *keys_, *values_;
  float* scores_;
  BFloat16* weights_;
  const uint8_t* rows_[BLOCK];
  alignas(64) float in_order_[LATENT];
  int parts_ = 1, tiles_ = 0;
};
}  // namespace

extern "C" int32_t NVFP4_ENTRY(nvfp4_attend)(const nvfp4_attention* job, int64_t first,
                                             int64_t end) {
  return attend<AmxEngine>(*job, first, end);
}

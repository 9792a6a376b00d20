// Attention with AMX: bfloat16 tiles, float32 sums.
//
// A row's values are exact in bfloat16. Float32 queries are split into two bfloat16 parts, and so
// are the weights: 16 bits of each take part, which leaves an error of some 1e-6. A tile is 16 rows
// of 64 bytes; TDPBF16PS multiplies A [16][32] by B [16 pairs][16][2] and adds to C [16][16]
// floats.
//
// Rows are unpacked once, as they lie. As A they give scores. The values' product wants pairs of
// keys side by side in B and gets pairs of dims: weights before zeros add up the even dims, zeros
// before weights the odd ones. That doubles the multiplications and still costs less than a second
// arrangement.
#include <immintrin.h>

#include "attend.h"
#include "nvfp4.h"
#include "unpack_avx512.h"

namespace {
constexpr int TILE = 16, DEPTH = 32;       // rows of a tile; its bfloat16 columns
constexpr int TILE_HALVES = TILE * DEPTH;  // bfloat16 values in a tile of 1 KB
static_assert(LANES == TILE);

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

constexpr uint8_t ZERO_ROW[ROW_BYTES] = {};  // stands for the keys that pad a block

// The bfloat16 nearest to each of 16 floats, as a float.
inline __m512 rounded(__m512 value) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  __m512i bits = _mm512_add_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, upper));
}

// 16 x 16 floats, rows to columns.
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
  static constexpr int BLOCK = 128;  // keys unpacked at a time: 144 KB, stays in L2
  static constexpr int STEP = 64;    // keys are padded with zeros to a multiple of this

  static size_t scratch_bytes(int tiles) {
    size_t heads = static_cast<size_t>(tiles) * TILE;
    return aligned(heads * WIDTH * 2 * 2) + aligned(heads * LATENT * 4) +
           aligned(BLOCK * WIDTH * 2) + aligned(BLOCK * TILE * 4) +
           aligned(DEPTH * 2) + aligned(BLOCK * DEPTH * 2 * 2);
  }

  AmxEngine(Scratch& scratch, int tiles)
      : queries_(scratch.take<BFloat16>(static_cast<size_t>(tiles) * TILE * WIDTH * 2)),
        sums_(scratch.take<float>(static_cast<size_t>(tiles) * TILE * LATENT)),
        keys_(scratch.take<BFloat16>(BLOCK * WIDTH)),
        scores_(scratch.take<float>(BLOCK * TILE)),
        weights_(scratch.take<BFloat16>(DEPTH) + DEPTH) {
    scratch.take<BFloat16>(BLOCK * DEPTH * 2);
    weights_[-1] = BFloat16{0};
    load_config();
  }
  ~AmxEngine() { _tile_release(); }
  AmxEngine(const AmxEngine&) = delete;
  AmxEngine& operator=(const AmxEngine&) = delete;

  // Queries as B by [tile][part][pair of dims][head][2], the heads left over zero; bfloat16 has one
  // part.
  void begin(const nvfp4_attention& job, int64_t row, int heads) {
    parts_ = job.query_dtype == NVFP4_BFLOAT16 ? 1 : 2;
    int last = heads / TILE * TILE;
    if (last < heads) std::memset(queries_ + last * 2 * WIDTH, 0, TILE * 2 * WIDTH * 2);
    for (int head = 0; head < heads; head++) {
      BFloat16* to = queries_ + head / TILE * 2 * TILE * WIDTH + head % TILE * 2;
      int64_t from = (row + head) * WIDTH;
      if (parts_ == 1) {
        const BFloat16* query = static_cast<const BFloat16*>(job.queries) + from;
        for (int d = 0; d < WIDTH; d++) to[place(d)] = query[d];
      } else {
        const float* query = static_cast<const float*>(job.queries) + from;
        for (int d = 0; d < WIDTH; d += TILE) {
          alignas(64) float upper[TILE], lower[TILE];
          __m512 value = _mm512_loadu_ps(query + d), nearest = rounded(value);
          _mm512_store_ps(upper, nearest);
          _mm512_store_ps(lower, rounded(_mm512_sub_ps(value, nearest)));
          for (int i = 0; i < TILE; i++) {
            narrow(upper[i], to + place(d + i));
            narrow(lower[i], to + TILE * WIDTH + place(d + i));
          }
        }
      }
    }
    size_t tiles = static_cast<size_t>((heads + TILE - 1) / TILE);
    std::memset(sums_, 0, tiles * TILE * LATENT * sizeof(float));
  }

  void unpack(const uint8_t* rows, const int32_t* kept, int keys, int64_t ahead) {
    constexpr int DISTANCE = 12;  // rows fetched before they are needed
    for (int j = 0; j < keys; j++) {
      if (j + DISTANCE < ahead) {
        const uint8_t* soon = rows + int64_t{kept[j + DISTANCE]} * ROW_BYTES;
        for (int at = 0; at < ROW_BYTES; at += 64) __builtin_prefetch(soon + at);
      }
      unpack_row(rows + int64_t{kept[j]} * ROW_BYTES, keys_ + j * WIDTH);
    }
    for (int j = keys; j < padded(keys); j++) unpack_row(ZERO_ROW, keys_ + j * WIDTH);
    finish_stores();
  }

  // [keys][16 heads].
  float* scores(int tile, int keys) {
    const BFloat16* queries = queries_ + tile * 2 * TILE * WIDTH;
    for (int j = 0; j < keys; j += STEP)
      parts_ == 1 ? multiply_queries<1>(queries, j) : multiply_queries<2>(queries, j);
    return scores_;
  }

  void rescale(int tile, int lane, float factor) {
    float* sums = sums_ + (tile * TILE + lane) * LATENT;
    for (int d = 0; d < LATENT; d++) sums[d] *= factor;
  }

  // Sums lie by [head][tile of 32 dims][even, odd][16].
  void accumulate(int tile, int keys) {
    for (int j = keys; j < padded(keys); j++)
      _mm512_store_ps(scores_ + j * TILE, _mm512_setzero_ps());
    for (int j = 0; j < keys; j += TILE) split_weights(j);
    finish_stores();

    constexpr int STRIDE = LATENT * 4, KEY_STRIDE = WIDTH * 2;
    for (int d = 0; d < LATENT; d += 2 * DEPTH) {
      float* sums = sums_ + tile * TILE * LATENT + d;
      _tile_loadd(0, sums, STRIDE);
      _tile_loadd(1, sums + TILE, STRIDE);
      _tile_loadd(2, sums + 2 * TILE, STRIDE);
      _tile_loadd(3, sums + 3 * TILE, STRIDE);
      for (int j = 0; j < keys; j += TILE) {
        const BFloat16 *values = keys_ + j * WIDTH + d, *weights = weights_ + j * DEPTH * 2;
        _tile_loadd(4, values, KEY_STRIDE);
        _tile_loadd(5, values + DEPTH, KEY_STRIDE);
        _tile_loadd(6, weights, 64);
        _tile_dpbf16ps(0, 6, 4);
        _tile_dpbf16ps(2, 6, 5);
        _tile_loadd(7, weights - 1, 64);
        _tile_dpbf16ps(1, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
        _tile_loadd(6, weights + TILE_HALVES, 64);
        _tile_dpbf16ps(0, 6, 4);
        _tile_dpbf16ps(2, 6, 5);
        _tile_loadd(7, weights + TILE_HALVES - 1, 64);
        _tile_dpbf16ps(1, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
      }
      _tile_stored(0, sums, STRIDE);
      _tile_stored(1, sums + TILE, STRIDE);
      _tile_stored(2, sums + 2 * TILE, STRIDE);
      _tile_stored(3, sums + 3 * TILE, STRIDE);
    }
  }

  // Sums of a head in the order of the latent.
  const float* sums(int head) {
    const float* from = sums_ + head * LATENT;
    for (int d = 0; d < LATENT; d += DEPTH)
      for (int i = 0; i < TILE; i++) {
        in_order_[d + 2 * i] = from[d + i];
        in_order_[d + 2 * i + 1] = from[d + TILE + i];
      }
    return in_order_;
  }

 private:
  static int padded(int keys) { return (keys + STEP - 1) / STEP * STEP; }
  static int place(int d) { return d / 2 * TILE * 2 + d % 2; }

  // Scores of 64 keys from j on.
  template <int PARTS>
  void multiply_queries(const BFloat16* queries, int j) {
    constexpr int STRIDE = WIDTH * 2;
    const BFloat16* keys = keys_ + j * WIDTH;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int d = 0; d < WIDTH; d += DEPTH, keys += DEPTH, queries += TILE_HALVES) {
      _tile_loadd(4, queries, 64);
      if (PARTS == 2) _tile_loadd(5, queries + TILE * WIDTH, 64);
      _tile_loadd(6, keys, STRIDE);
      _tile_dpbf16ps(0, 6, 4);
      if (PARTS == 2) _tile_dpbf16ps(0, 6, 5);
      _tile_loadd(7, keys + TILE * WIDTH, STRIDE);
      _tile_dpbf16ps(1, 7, 4);
      if (PARTS == 2) _tile_dpbf16ps(1, 7, 5);
      _tile_loadd(6, keys + 2 * TILE * WIDTH, STRIDE);
      _tile_dpbf16ps(2, 6, 4);
      if (PARTS == 2) _tile_dpbf16ps(2, 6, 5);
      _tile_loadd(7, keys + 3 * TILE * WIDTH, STRIDE);
      _tile_dpbf16ps(3, 7, 4);
      if (PARTS == 2) _tile_dpbf16ps(3, 7, 5);
    }
    float* to = scores_ + j * TILE;
    _tile_stored(0, to, 64);
    _tile_stored(1, to + TILE * TILE, 64);
    _tile_stored(2, to + 2 * TILE * TILE, 64);
    _tile_stored(3, to + 3 * TILE * TILE, 64);
  }

  // Weights of 16 keys from j on as A, [part][head][key][2], each before a zero. Read from one
  // value earlier, each is behind the zero of the one before it.
  void split_weights(int j) {
    __m512 weights[TILE];
    for (int i = 0; i < TILE; i++) weights[i] = _mm512_load_ps(scores_ + (j + i) * TILE);
    transpose(weights);
    BFloat16* to = weights_ + j * DEPTH * 2;
    for (int i = 0; i < TILE; i++, to += DEPTH) {
      __m512 upper = rounded(weights[i]), lower = rounded(_mm512_sub_ps(weights[i], upper));
      _mm512_store_si512(to, _mm512_srli_epi32(_mm512_castps_si512(upper), 16));
      _mm512_store_si512(to + TILE_HALVES, _mm512_srli_epi32(_mm512_castps_si512(lower), 16));
    }
  }

  BFloat16* queries_;
  float* sums_;
  BFloat16* keys_;
  float* scores_;
  BFloat16* weights_;
  float in_order_[LATENT];
  int parts_ = 1;
};
}  // namespace

extern "C" int32_t NVFP4_ENTRY(nvfp4_attend)(const nvfp4_attention* job, int64_t first,
                                             int64_t end) {
  return attend<AmxEngine>(*job, first, end);
}

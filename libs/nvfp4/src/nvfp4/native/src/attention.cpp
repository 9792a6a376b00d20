// Attention in float32 with the compiler's vectors: portable, AVX2 and AVX-512 from one source.
#include "attend.h"
#include "nvfp4.h"
#include "vectors.h"
#if defined(__AVX512F__)
#include "unpack_avx512.h"
#else
#include "unpack_portable.h"
#endif

namespace {
class VectorEngine {
 public:
  static constexpr int BLOCK = 48;  // keys unpacked at a time: 108 KB, stays in L2

  static size_t scratch_bytes(int tiles) {
    size_t heads = static_cast<size_t>(tiles) * LANES;
    return aligned(heads * WIDTH * 4) + aligned(heads * LATENT * 4) + aligned(BLOCK * WIDTH * 4) +
           aligned(heads * BLOCK * 4);
  }

  VectorEngine(Scratch& scratch, int tiles)
      : queries_(scratch.take<float>(static_cast<size_t>(tiles) * LANES * WIDTH)),
        sums_(scratch.take<float>(static_cast<size_t>(tiles) * LANES * LATENT)),
        keys_(scratch.take<float>(BLOCK * WIDTH)),
        scores_(scratch.take<float>(static_cast<size_t>(tiles) * LANES * BLOCK)) {}

  // Queries of a span, transposed: heads side by side in a vector, the lanes left over zero.
  void begin(const nvfp4_attention& job, int64_t row, int heads) {
    int last = heads / LANES * LANES;
    if (last < heads) std::memset(queries_ + last * WIDTH, 0, LANES * WIDTH * sizeof(float));
    for (int head = 0; head < heads; head++) {
      float* to = queries_ + head / LANES * LANES * WIDTH + head % LANES;
      int64_t from = (row + head) * WIDTH;
      if (job.query_dtype == NVFP4_BFLOAT16) {
        const uint16_t* halves = static_cast<const uint16_t*>(job.queries) + from;
        for (int d = 0; d < WIDTH; d++)
          to[d * LANES] = __builtin_bit_cast(float, uint32_t{halves[d]} << 16);
      } else {
        const float* values = static_cast<const float*>(job.queries) + from;
        for (int d = 0; d < WIDTH; d++) to[d * LANES] = values[d];
      }
    }
    tiles_ = (heads + LANES - 1) / LANES;
    std::memset(sums_, 0, static_cast<size_t>(tiles_) * LANES * LATENT * sizeof(float));
  }

  // Unpacks the rows of a block and multiplies them with all queries.
  void multiply(const uint8_t* rows, const int32_t* kept, int keys, int64_t ahead) {
    constexpr int DISTANCE = 8;  // rows fetched before they are needed
    for (int j = 0; j < keys; j++) {
      if (j + DISTANCE < ahead) {
        const uint8_t* soon = rows + int64_t{kept[j + DISTANCE]} * ROW_BYTES;
        for (int at = 0; at < ROW_BYTES; at += 64) __builtin_prefetch(soon + at);
      }
      unpack_row(rows + int64_t{kept[j]} * ROW_BYTES, keys_ + j * WIDTH);
    }
    for (int tile = 0; tile < tiles_; tile++) multiply_tile(tile, keys);
  }

  // [keys][LANES].
  float* scores(int tile) { return scores_ + tile * BLOCK * LANES; }

  void rescale(int tile, int lane, float factor) {
    float* sums = sums_ + (tile * LANES + lane) * LATENT;
    for (int d = 0; d < LATENT; d++) sums[d] *= factor;
  }

  void accumulate(int keys) {
    for (int tile = 0; tile < tiles_; tile++) accumulate_tile(tile, keys);
  }

  const float* sums(int head) const { return sums_ + head * LATENT; }

 private:
  // Products of a tile's queries with the block's keys, KEY_TILE keys at a time; those past the last
  // key are of old rows and are not read.
  void multiply_tile(int tile, int keys) {
    constexpr int KEY_TILE = 12;
    static_assert(BLOCK % KEY_TILE == 0);
    const float* queries = queries_ + tile * LANES * WIDTH;
    for (int j = 0; j < keys; j += KEY_TILE) {
      const float* key = keys_ + j * WIDTH;
      Vector products[KEY_TILE] = {};
      for (int d = 0; d < WIDTH; d++) {
        Vector query = load(queries + d * LANES);
        for (int z = 0; z < KEY_TILE; z++) products[z] += query * key[z * WIDTH + d];
      }
      for (int z = 0; z < KEY_TILE; z++) store(scores(tile) + (j + z) * LANES, products[z]);
    }
  }

  // Adds the weighted values: HEADS heads by WIDE vectors of the latent stay in registers.
  void accumulate_tile(int tile, int keys) {
    constexpr int HEADS = LANES == 16 ? 4 : 2, WIDE = 4;
    for (int head = 0; head < LANES; head += HEADS)
      for (int d = 0; d < LATENT; d += WIDE * LANES) {
        float* to = sums_ + (tile * LANES + head) * LATENT + d;
        Vector sums[HEADS][WIDE];
        for (int h = 0; h < HEADS; h++)
          for (int w = 0; w < WIDE; w++) sums[h][w] = load(to + h * LATENT + w * LANES);
        for (int j = 0; j < keys; j++) {
          const float *value = keys_ + j * WIDTH + d, *weight = scores(tile) + j * LANES + head;
          for (int w = 0; w < WIDE; w++) {
            Vector values = load(value + w * LANES);
            for (int h = 0; h < HEADS; h++) sums[h][w] += values * weight[h];
          }
        }
        for (int h = 0; h < HEADS; h++)
          for (int w = 0; w < WIDE; w++) store(to + h * LATENT + w * LANES, sums[h][w]);
      }
  }

  float *queries_, *sums_, *keys_, *scores_;
  int tiles_ = 0;
};
}  // namespace

extern "C" int32_t NVFP4_ENTRY(nvfp4_attend)(const nvfp4_attention* job, int64_t first,
                                             int64_t end) {
  return attend<VectorEngine>(*job, first, end);
}

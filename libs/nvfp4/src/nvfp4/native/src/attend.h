// One token's attention over the rows it chose, block by block: what both engines share.
//
// An engine unpacks a block of rows and multiplies queries with keys, and then adds weighted values;
// the online softmax between is here. Heads go in tiles of LANES, one lane each, so that nothing is
// summed across lanes. Scores are in base 2.
#pragma once
#include <cmath>
#include <cstring>

#include "nvfp4.h"
#include "scratch.h"
#include "vectors.h"

namespace {
constexpr float LOG2_E = 1.44269504f;
constexpr double LN_2 = 0.6931471805599453;

// A maximum may be stale by this much before sums are rescaled: 2^8 costs no precision in float32,
// and after the first block few blocks raise it further.
constexpr float STALE = 8;

// Running maximum (base 2) and sum of a tile of heads.
struct Softmax {
  Vector top, sum;
};

// Scores [keys][LANES] become weights in place; returns true where earlier sums must be multiplied
// by `correction` first.
inline bool weigh(float* scores, int keys, float scale, bool is_first, Softmax* state,
                  Vector* correction) {
  Vector top = load(scores) * scale;
  for (int j = 0; j < keys; j++) {
    Vector score = load(scores + j * LANES) * scale;
    store(scores + j * LANES, score);
    top = score > top ? score : top;
  }
  bool rescales = false;
  if (is_first) {
    *state = {top, Vector{}};
  } else {
    for (int lane = 0; lane < LANES; lane++) rescales |= top[lane] > state->top[lane] + STALE;
  }
  if (rescales) {
    top = top > state->top ? top : state->top;
    *correction = exp2_of(state->top - top);
    *state = {top, state->sum * *correction};
  }
  for (int j = 0; j < keys; j++) {
    Vector weight = exp2_of(load(scores + j * LANES) - state->top);
    state->sum += weight;
    store(scores + j * LANES, weight);
  }
  return rescales;
}

// Divides by the sum, the sink included, and gives the natural log-sum-exp.
inline void finish(const float* sums, float top, float sum, double sink, float* out, float* lse) {
  sink *= 1 / LN_2;
  double highest = sink > top ? sink : top, part = exp2(top - highest);
  double total = sum * part + exp2(sink - highest);
  float factor = static_cast<float>(part / total);
  for (int d = 0; d < LATENT; d++) out[d] = sums[d] * factor;
  *lse = static_cast<float>((highest + log2(total)) * LN_2);
}

// Rows of one token in the order given, without empty slots.
inline int64_t keep(const nvfp4_attention& job, int64_t token, int32_t* kept) {
  const int32_t* indices = job.indices + token * job.slots;
  int64_t slots = job.counts ? job.counts[token] : job.slots, count = 0;
  for (int64_t slot = 0; slot < slots; slot++) {
    kept[count] = indices[slot];
    count += indices[slot] >= 0;
  }
  return count;
}

template <typename Engine>
void attend_item(const nvfp4_attention& job, int64_t item, Engine& engine, int32_t* kept,
                 Softmax* states) {
  int64_t spans = (job.heads + job.span_heads - 1) / job.span_heads;
  int64_t token = item / spans, first = item % spans * job.span_heads;
  int64_t left = job.heads - first;
  int heads = static_cast<int>(left < job.span_heads ? left : job.span_heads);
  int tiles = (heads + LANES - 1) / LANES;
  int64_t count = keep(job, token, kept);

  if (count) engine.begin(job, token * job.heads + first, heads);
  for (int64_t at = 0; at < count; at += Engine::BLOCK) {
    int keys = static_cast<int>(count - at < Engine::BLOCK ? count - at : Engine::BLOCK);
    engine.multiply(job.rows, kept + at, keys, count - at);
    for (int tile = 0; tile < tiles; tile++) {
      float* scores = engine.scores(tile);
      Vector correction;
      if (weigh(scores, keys, job.scale * LOG2_E, at == 0, &states[tile], &correction))
        for (int lane = 0; lane < LANES; lane++) engine.rescale(tile, lane, correction[lane]);
    }
    engine.accumulate(keys);
  }

  for (int head = 0; head < heads; head++) {
    int64_t at = token * job.heads + first + head;
    double sink = job.sinks ? job.sinks[first + head] : -HUGE_VAL;
    float* out = job.out + at * LATENT;
    if (count) {
      const Softmax& state = states[head / LANES];
      int lane = head % LANES;
      finish(engine.sums(head), state.top[lane], state.sum[lane], sink, out, &job.lse[at]);
    } else {
      std::memset(out, 0, LATENT * sizeof(float));
      job.lse[at] = static_cast<float>(sink);
    }
  }
}

// Work items [first, end); 1 when there is no memory for scratch.
template <typename Engine>
int32_t attend(const nvfp4_attention& job, int64_t first, int64_t end) {
  int tiles = static_cast<int>((job.span_heads + LANES - 1) / LANES);
  size_t slots = static_cast<size_t>(job.slots) + 1;  // keep() writes one past what it keeps
  Scratch scratch(Engine::scratch_bytes(tiles) + aligned(slots * sizeof(int32_t)) +
                  aligned(tiles * sizeof(Softmax)));
  if (!scratch.is_there()) return 1;
  Engine engine(scratch, tiles);
  int32_t* kept = scratch.take<int32_t>(slots);
  Softmax* states = scratch.take<Softmax>(static_cast<size_t>(tiles));
  for (int64_t item = first; item < end; item++) attend_item(job, item, engine, kept, states);
  return 0;
}
}  // namespace

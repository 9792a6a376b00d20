#pragma once
// Role 2: scores and softmax. A score warp multiplies one tile of 16 query rows with the 32 rows of
// a stage over its slice of the 576 dims; the warps of a tile exchange their partial sums, each
// finds the same running maximum, and each turns its own part of the 32 slots into probabilities.
#include "fragments.h"

namespace sparse_mla {

constexpr int kSteps = kDims / 16;  // k-steps of an MMA

// One partial sum of the whole slice: sums[n] are the slots 8n..8n+7.
template <class S, int kSliceSteps>
DEV void multiply_slice(const S& sm, float (&sums)[4][4], const uint32_t (&held)[kSliceSteps][4],
                        int slot, int tile, int step0, int lane) {
  const uint16_t* keys = key_fragment(sm.rings.tile[slot][0] + 16 * step0, lane);
  const uint16_t* rows = left_fragment(sm.query[16 * tile] + 16 * step0, kTileStride, lane);
#pragma unroll
  for (int k = 0; k < kSteps / S::kSlices; k++) {
    uint32_t q[4], key[2][4];
    if constexpr (kSliceSteps > 1) {
      for (int i = 0; i < 4; i++) q[i] = held[k][i];
    } else {
      load_matrices(q, rows + 16 * k);
    }
    for (int n = 0; n < 2; n++) load_matrices(key[n], keys + 16 * n * kTileStride + 16 * k);
    for (int n = 0; n < 4; n++) mma(sums[n], q, key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
  }
}

// Adds up the slices of a tile, in the same order in every warp of the tile.
template <class S>
DEV void add_slices(S& sm, float (&sums)[4][4], int stage, int warp, int tile, int lane) {
  // Two boxes: the next stage's may be written while this one is still read.
  auto& box = sm.exchange[stage % 2];
  for (int n = 0; n < 4; n++)
    box[warp][n][lane] = {float_bits(sums[n][0]), float_bits(sums[n][1]), float_bits(sums[n][2]),
                          float_bits(sums[n][3])};
  named_sync(3 + tile, 32 * S::kSlices);
  for (int n = 0; n < 4; n++) {
    for (int i = 0; i < 4; i++) sums[n][i] = 0.f;
    for (int other = tile * S::kSlices; other < (tile + 1) * S::kSlices; other++) {
      const Words4 part = box[other][n][lane];
      sums[n][0] += bits_float(part.x);
      sums[n][1] += bits_float(part.y);
      sums[n][2] += bits_float(part.z);
      sums[n][3] += bits_float(part.w);
    }
  }
}

// One probability pair in its halves; what is added to the denominator is what the MMA will see.
template <class S>
DEV float store_probabilities(S& sm, int slot, int row, int key, float p0, float p1) {
  uint32_t pair = pack_halves(p0, p1);
  float seen0 = low_half(pair), seen1 = high_half(pair);
  *reinterpret_cast<uint32_t*>(&sm.prob[slot][0][row][key]) = pair;
  if constexpr (S::kSplit) {
    uint32_t rest = pack_halves(p0 - seen0, p1 - seen1);
    *reinterpret_cast<uint32_t*>(&sm.prob[slot][S::kParts - 1][row][key]) = rest;
    seen0 += low_half(rest);
    seen1 += high_half(rest);
  }
  return seen0 + seen1;
}

template <class S>
DEV void score(S& sm, const DecodeCall& call, Stages stages) {
  const int warp = thread_index() / 32 - kUnpackWarps, lane = thread_index() % 32;
  const int tile = warp / S::kSlices, slice = warp % S::kSlices;
  const int step0 = slice * (kSteps / S::kSlices);
  // A lane holds two query rows of the tile (PTX, mma.m16n8k16): lane / 4 and that + 8.
  int row[2], token[2];
  float factor[2], top[2], sum[2];
  for (int r = 0; r < 2; r++) {
    row[r] = 16 * tile + lane / 4 + 8 * r;
    const int t = (row_group() * S::kRows + row[r]) / call.heads;
    token[r] = t < 32 ? t : 31;  // rows past the job's end are computed and never stored
    factor[r] = sm.factor[row[r]];
    top[r] = kEmpty;
    sum[r] = 0.f;
  }
  // The query's fragments stay in registers where they fit: 9 or 18 k-steps, but not 36.
  constexpr int kHeld = S::kTiles == 4 ? 1 : kSteps / S::kSlices;
  uint32_t held[kHeld][4] = {};
  if constexpr (kHeld > 1) {
#pragma unroll
    for (int k = 0; k < kHeld; k++)
      load_matrices(held[k],
                    left_fragment(sm.query[16 * tile] + 16 * (step0 + k), kTileStride, lane));
  }

  for (int s = 0; s < stages.count; s++) {
    // load
    const Turn in = turn(s, kRing), out = turn(s, 2);
    wait_filled(&sm.tile_full[in.slot], in);

    // compute: raw scores of 16 rows and 32 slots
    float sums[4][4] = {};
    multiply_slice<S>(sm, sums, held, in.slot, tile, step0, lane);
    if constexpr (S::kSlices > 1) add_slices(sm, sums, s, warp, tile, lane);

    // compute: which of this lane's 16 values count, and the running maximum of its two rows
    uint32_t counts = 0;
    float before[2] = {top[0], top[1]};
    for (int n = 0; n < 4; n++) {
      const Words2 mask =
          *reinterpret_cast<const Words2*>(&sm.mask[in.slot][8 * n + 2 * (lane % 4)]);
      for (int i = 0; i < 4; i++) {
        const int r = i / 2;
        if (((i % 2 ? mask.y : mask.x) >> token[r] & 1) == 0) continue;
        counts |= 1u << (4 * n + i);
        top[r] = max_of(top[r], sums[n][i] * factor[r]);
      }
    }
    for (int r = 0; r < 2; r++) {
      top[r] = max_of(top[r], shuffle_xor(top[r], 1));
      top[r] = max_of(top[r], shuffle_xor(top[r], 2));
    }

    // store: this warp's part of the probabilities, and by how much the maximum moved
    constexpr int kOwn = 4 / S::kSlices;  // of the four groups of 8 slots
    float own[kOwn][4];
    for (int n = 0; n < 4; n++)
      for (int i = 0; i < 4; i++)
        own[n % kOwn][i] = n < kOwn || n / kOwn == slice ? sums[n][i] : own[n % kOwn][i];
    counts >>= 4 * kOwn * slice;
    wait_freed(&sm.prob_free[out.slot], out);
    for (int r = 0; r < 2; r++) {
      const float correction = exp2_of(before[r] - top[r]);
      if (slice == 0 && lane % 4 == 0) sm.correction[out.slot][row[r]] = correction;
      sum[r] *= correction;
      for (int n = 0; n < kOwn; n++) {
        float p[2];
        for (int i = 0; i < 2; i++) {
          const float x = multiply_add(own[n][2 * r + i], factor[r], kProbBits - top[r]);
          p[i] = counts >> (4 * n + 2 * r + i) & 1 ? exp2_of(x) : 0.f;
        }
        const int key = 8 * (slice * kOwn + n) + 2 * (lane % 4);
        sum[r] += store_probabilities(sm, out.slot, row[r], key, p[0], p[1]);
      }
    }
    arrive_warp(&sm.prob_full[out.slot], lane);
  }

  for (int r = 0; r < 2; r++) {
    sum[r] += shuffle_xor(sum[r], 1);
    sum[r] += shuffle_xor(sum[r], 2);
    if (lane % 4 == 0) sm.row_sum[slice][row[r]] = sum[r];
    if (slice == 0 && lane % 4 == 0) sm.row_max[row[r]] = top[r];
  }
}

}  // namespace sparse_mla

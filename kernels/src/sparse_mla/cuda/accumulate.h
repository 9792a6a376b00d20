#pragma once
// Role 3: probabilities times values. An accumulate warp owns 64 of the 512 value dims of every
// query row and keeps them in registers; what it has done last frees the stage for the unpack
// warps.
#include "fragments.h"

namespace sparse_mla {

constexpr int kWarpDims = kValueDims / kAccumulateWarps;

// Rescales a tile's rows to the new maximum, unless no row's maximum moved.
DEV void rescale(float (&acc)[kWarpDims / 8][4], const float* correction, int lane) {
  const float by[2] = {correction[lane / 4], correction[lane / 4 + 8]};
  if (ballot(by[0] != 1.f || by[1] != 1.f) == 0) return;
  for (int n = 0; n < kWarpDims / 8; n++)
    for (int i = 0; i < 4; i++) acc[n][i] *= by[i / 2];
}

template <class S>
DEV void accumulate(S& sm, Stages stages) {
  const int warp = thread_index() / 32 - kUnpackWarps - kScoreWarps, lane = thread_index() % 32;
  const int dim0 = warp * kWarpDims;
  float acc[S::kTiles][kWarpDims / 8][4] = {};

  for (int s = 0; s < stages.count; s++) {
    // load
    const Turn in = turn(s, kRing), probs = turn(s, 2);
    wait_filled(&sm.prob_full[probs.slot], probs);

    // compute
#pragma unroll
    for (int tile = 0; tile < S::kTiles; tile++)
      rescale(acc[tile], &sm.correction[probs.slot][16 * tile], lane);
#pragma unroll
    for (int k = 0; k < kStage; k += 16) {
      uint32_t values[kWarpDims / 16][4];
#pragma unroll
      for (int n = 0; n < kWarpDims / 16; n++)
        load_matrices_transposed(values[n],
                                 value_fragment(&sm.rings.tile[in.slot][k][dim0 + 16 * n], lane));
#pragma unroll
      for (int tile = 0; tile < S::kTiles; tile++)
#pragma unroll
        for (int part = 0; part < S::kParts; part++) {
          uint32_t p[4];
          load_matrices(p,
                        left_fragment(&sm.prob[probs.slot][part][16 * tile][k], kProbStride, lane));
#pragma unroll
          for (int n = 0; n < kWarpDims / 8; n++)
            mma(acc[tile][n], p, values[n / 2][n % 2 * 2], values[n / 2][n % 2 * 2 + 1]);
        }
    }
    arrive_warp(&sm.tile_free[in.slot], lane);
    if (lane == 0) mbarrier_arrive(&sm.prob_free[probs.slot]);
  }

  // store: over the rings, once every accumulate warp has read its last stage
  named_sync(2, 32 * kAccumulateWarps);
#pragma unroll
  for (int tile = 0; tile < S::kTiles; tile++)
#pragma unroll
    for (int n = 0; n < kWarpDims / 8; n++)
      for (int r = 0; r < 2; r++) {
        float* to = &sm.partial[16 * tile + lane / 4 + 8 * r][dim0 + 8 * n + 2 * (lane % 4)];
        *reinterpret_cast<Floats2*>(to) = {acc[tile][n][2 * r], acc[tile][n][2 * r + 1]};
      }
}

}  // namespace sparse_mla

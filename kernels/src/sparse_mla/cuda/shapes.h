#pragma once
// Sizes of the decode kernel and the shared memory of one block.
#include "call.h"
#include "port.h"

namespace sparse_mla {

constexpr int kDims = 576, kValueDims = 512, kRowBytes = 352;
constexpr int kStage = 32;  // slots per stage: one per lane, and two k-steps of the value MMA
constexpr int kRing = 3;    // unpacked stages: one being written, one scored, one accumulated
constexpr int kUnpackWarps = 4, kScoreWarps = 4, kAccumulateWarps = 8;
constexpr int kThreads = 32 * (kUnpackWarps + kScoreWarps + kAccumulateWarps);
constexpr int kMaxBlocks = 8;  // the largest portable cluster

// Eight padding halves make eight consecutive rows start in eight different 16-byte bank groups, so
// that ldmatrix is free of conflicts; eight floats do the same for the partial result's stores.
constexpr int kTileStride = kDims + 8;
constexpr int kProbStride = kStage + 8;
constexpr int kPartialStride = kValueDims + 8;

// A finite stand-in for minus infinity: kEmpty - kEmpty is 0, not NaN, where a whole block is
// empty.
constexpr float kEmpty = -1e30f;
// Probabilities are held at 2^14 times their value, where a half still has all its bits for small
// ones.
constexpr float kProbBits = 14.f;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

enum Fate : uint8_t { kNoRow, kLoaded, kOutOfRange };

template <int kTilesOf16, bool kTwoHalves>
struct Shared {
  static constexpr int kTiles = kTilesOf16;
  static constexpr bool kSplit = kTwoHalves;
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kSlices = kScoreWarps / kTiles;  // score warps that share a tile's 576 dims
  static constexpr bool kExchanges = kSlices > 1;
  static constexpr int kPacked =
      kTiles == 4 ? 2 : 3;  // rows in flight; four tiles leave no room for 3
  static constexpr int kParts = kSplit ? 2 : 1;

  struct Rings {
    uint16_t tile[kRing][kStage][kTileStride];  // unpacked rows, halves
    uint8_t packed[kPacked][kStage][kRowBytes];
  };
  union alignas(128) {
    Rings rings;
    float partial[kRows][kPartialStride];  // this block's result, once the rings are drained
  };
  union alignas(16) {
    uint16_t query[kRows][kTileStride];
    float weight[kMaxBlocks][kRows];  // of each block's partial, once all scores are done
  };
  alignas(16) uint16_t prob[2][kParts][kRows][kProbStride];
  Words4 exchange[kExchanges ? 2 : 1][kExchanges ? kScoreWarps : 1][4][kExchanges ? 32 : 1];
  alignas(8) Mbarrier packed_full[kPacked][kUnpackWarps];
  Mbarrier tile_full[kRing], tile_free[kRing], prob_full[2], prob_free[2];
  alignas(8) uint32_t mask[kRing][kStage];
  uint32_t pending_mask[kPacked][kStage];
  float correction[2][kRows];
  float factor[kRows];  // of a raw score: softmax scale, log2(e) and the query row's power of two
  float row_max[kRows], row_sum[kSlices][kRows];
  Fate pending_fate[kPacked][kStage];
};
static_assert(sizeof(Shared<1, true>) <= 232448 && sizeof(Shared<2, true>) <= 232448 &&
                  sizeof(Shared<4, true>) <= 232448,
              "227 KB is what a block may use on sm_90 and sm_100");

// The stages of a job that this block works on: an uneven split gives some blocks one more.
struct Stages {
  int first, count;
};
DEV Stages my_stages(const Job& job) {
  int all = (job.length + kStage - 1) / kStage, blocks = cluster_blocks(), rank = block_rank();
  int first = all * rank / blocks;
  return {first, all * (rank + 1) / blocks - first};
}

// Slot and phase of the n-th use of a ring of `size` slots.
struct Turn {
  int slot;
  uint32_t lap;
};
DEV Turn turn(int n, int size) { return {n % size, static_cast<uint32_t>(n / size)}; }
// The consumer waits for this lap to be filled, the producer for the previous one to be freed.
DEV void wait_filled(Mbarrier* b, Turn t) { mbarrier_wait(b, t.lap & 1); }
DEV void wait_freed(Mbarrier* b, Turn t) {
  if (t.lap > 0) mbarrier_wait(b, (t.lap - 1) & 1);
}
DEV void arrive_warp(Mbarrier* b,
                     int lane) {  // what the whole warp did before is visible to waiters
  warp_sync();
  if (lane == 0) mbarrier_arrive(b);
}

}  // namespace sparse_mla

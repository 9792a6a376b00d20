#pragma once
// Sparse MLA decode over nvfp4_ds_mla rows: what one block of a cluster does. A cluster serves up
// to 64 query rows (16, 32 or 64) of one job; its blocks share the job's slots and merge at the
// end.
#include "accumulate.h"
#include "merge.h"
#include "query.h"
#include "score.h"
#include "unpack.h"

namespace sparse_mla {

// Registers of each role with four tiles: 128 accumulators per thread leave the others less. With
// the 128 of every thread at the start, 128 x 56 + 128 x 104 + 256 x 176 are the 64K of a
// multiprocessor.
constexpr int kStartRegisters = 128;
constexpr int kUnpackRegisters = 56, kScoreRegisters = 104, kAccumulateRegisters = 176;

template <class S>
DEV void init_barriers(S& sm) {
  for (int i = 0; i < S::kPacked * kUnpackWarps; i++) mbarrier_init(&sm.packed_full[0][0] + i, 1);
  for (int i = 0; i < kRing; i++) {
    mbarrier_init(&sm.tile_full[i], kUnpackWarps);
    mbarrier_init(&sm.tile_free[i], kAccumulateWarps);
  }
  for (int i = 0; i < 2; i++) {
    mbarrier_init(&sm.prob_full[i], kScoreWarps);
    mbarrier_init(&sm.prob_free[i], kAccumulateWarps);
  }
  mbarrier_init_fence();
}

template <class S>
DEV void decode(S& sm, const DecodeCall& call) {
  const int j = job_index();
  const Job job = call.jobs ? call.jobs[j] : Job{j, 1, j * call.topk, call.topk};
  if (row_group() * S::kRows >= job.tokens * call.heads) return;  // the whole cluster
  const Stages stages = my_stages(job);
  const int warp = thread_index() / 32, lane = thread_index() % 32;
  if (thread_index() == 0) init_barriers(sm);
  block_sync();

  constexpr bool kMoves = S::kTiles == 4;
  if (warp < kUnpackWarps) {
    if constexpr (kMoves) lower_registers<kUnpackRegisters>();
    unpack(sm, call, job, stages);
    if constexpr (kMoves) raise_registers<kStartRegisters>();
  } else if (warp < kUnpackWarps + kScoreWarps) {
    if constexpr (kMoves) lower_registers<kScoreRegisters>();
    load_query(sm, call, job, warp - kUnpackWarps, lane);
    score(sm, call, stages);
    if constexpr (kMoves) raise_registers<kStartRegisters>();
  } else {
    if constexpr (kMoves) raise_registers<kAccumulateRegisters>();
    load_query(sm, call, job, warp - kUnpackWarps, lane);
    accumulate(sm, stages);
    if constexpr (kMoves) lower_registers<kStartRegisters>();
  }

  cluster_sync();  // every partial is complete
  merge(sm, call, job);
  cluster_sync();  // no block leaves while its shared memory is read
}

}  // namespace sparse_mla

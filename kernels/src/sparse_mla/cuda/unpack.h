#pragma once
// Role 1: rows from memory to halves. Each unpack warp owns 8 of the 32 slots of every stage, from
// the bulk copy to the finished tile, so the packed ring needs no barrier between warps. An empty
// slot is never loaded; its tile row is zeros. An index outside the cache is not loaded either: its
// tile row is NaN, and so is every result that uses it.
#include "shapes.h"

namespace sparse_mla {

constexpr int kSlotsPerWarp = kStage / kUnpackWarps;
constexpr uint32_t kNaNHalves = 0x7e007e00u;

// What one lane knows about one slot before its row is loaded.
struct Wanted {
  int32_t row;
  uint32_t mask;
};

DEV Wanted wanted(const DecodeCall& call, const Job& job, int at) {
  if (at >= job.length) return {-1, 0};
  int32_t row = call.indices[job.begin + at];
  if (row == -1) return {row, 0};
  return {row, call.masks ? call.masks[job.begin + at] : ~0u};
}

template <class S>
DEV void request_rows(S& sm, const DecodeCall& call, int slot, int warp, int lane, Wanted want) {
  const bool has_slot = lane < kSlotsPerWarp;
  const bool in_range = want.row >= 0 && want.row < call.num_rows;
  const bool loads = has_slot && want.mask != 0 && in_range;
  const int at = warp * kSlotsPerWarp + lane;
  if (has_slot) {
    sm.pending_mask[slot][at] = want.mask;
    sm.pending_fate[slot][at] = loads ? kLoaded : want.mask != 0 ? kOutOfRange : kNoRow;
  }
  const uint32_t voters = ballot(loads);
  Mbarrier* full = &sm.packed_full[slot][warp];
  warp_sync();  // the lanes have read what the copies replace, and written what they will read
  if (lane == 0) {
    uint32_t bytes = 0;
    for (int i = 0; i < kSlotsPerWarp; i++) bytes += (voters >> i & 1) * kRowBytes;
    if (bytes)
      mbarrier_expect(full, bytes);
    else
      mbarrier_arrive(full);  // nothing to come
  }
  if (loads)
    bulk_load(sm.rings.packed[slot][at], call.rows + static_cast<size_t>(want.row) * kRowBytes,
              kRowBytes, full);
}

// Lane g unpacks group g: 8 bytes of codes at 8g, its scale at 320 + 8 (g & 3) + (g >> 2), and two
// of the 64 rope values. Both products are exact in halves.
DEV void unpack_row(uint16_t* to, const uint8_t* row, int lane) {
  const Words2 codes = *reinterpret_cast<const Words2*>(row + 8 * lane);
  const uint32_t scale_byte = row[320 + 8 * (lane & 3) + (lane >> 2)];
  const uint32_t scale = e4m3_pair(scale_byte | scale_byte << 8);
  uint32_t low[4], high[4];
  e2m1_pairs(low, codes.x);
  e2m1_pairs(high, codes.y);
  for (int i = 0; i < 4; i++) {
    low[i] = multiply_halves(low[i], scale);
    high[i] = multiply_halves(high[i], scale);
  }
  // Which half of its 32 bytes a lane stores first alternates by four lanes: no bank conflicts.
  const bool high_first = lane & 4;
  Words4* at = reinterpret_cast<Words4*>(to + 16 * lane);
  const Words4 a{low[0], low[1], low[2], low[3]}, b{high[0], high[1], high[2], high[3]};
  at[high_first ? 1 : 0] = high_first ? b : a;
  at[high_first ? 0 : 1] = high_first ? a : b;
  const uint32_t rope = *reinterpret_cast<const uint16_t*>(row + 256 + 2 * lane);
  reinterpret_cast<uint32_t*>(to + kValueDims)[lane] = e4m3_pair(rope);
}

DEV void fill_row(uint16_t* to, uint32_t halves, int lane) {
  uint32_t* words = reinterpret_cast<uint32_t*>(to);
  for (int i = lane; i < kDims / 2; i += 32) words[i] = halves;
}

template <class S>
DEV void unpack(S& sm, const DecodeCall& call, const Job& job, Stages stages) {
  const int warp = thread_index() / 32, lane = thread_index() % 32;
  // This lane's slot of the first stage.
  const int at0 = stages.first * kStage + warp * kSlotsPerWarp + lane;
  for (int s = 0; s < S::kPacked && s < stages.count; s++)
    request_rows(sm, call, s, warp, lane, wanted(call, job, at0 + s * kStage));
  // One stage further ahead, so that the index is here when its row is asked for.
  Wanted next = wanted(call, job, at0 + S::kPacked * kStage);

  for (int s = 0; s < stages.count; s++) {
    // load
    const Turn packed = turn(s, S::kPacked), tile = turn(s, kRing);
    wait_filled(&sm.packed_full[packed.slot][warp], packed);
    wait_freed(&sm.tile_free[tile.slot], tile);

    // compute and store
#pragma unroll 4
    for (int i = 0; i < kSlotsPerWarp; i++) {
      const int at = warp * kSlotsPerWarp + i;
      uint16_t* to = sm.rings.tile[tile.slot][at];
      const Fate fate = sm.pending_fate[packed.slot][at];
      if (fate == kLoaded)
        unpack_row(to, sm.rings.packed[packed.slot][at], lane);
      else
        fill_row(to, fate == kOutOfRange ? kNaNHalves : 0u, lane);
      if (lane == i) sm.mask[tile.slot][at] = sm.pending_mask[packed.slot][at];
    }
    arrive_warp(&sm.tile_full[tile.slot], lane);

    // ask for the stage that takes this one's place in the packed ring
    if (s + S::kPacked < stages.count) {
      request_rows(sm, call, packed.slot, warp, lane, next);
      next = wanted(call, job, at0 + (s + S::kPacked + 1) * kStage);
    }
  }
}

}  // namespace sparse_mla

#pragma once
// A whole call on the emulator: every cluster of the grid, one after the other.
#include "../cuda/decode.h"

namespace sparse_mla {

template <int kTiles, bool kSplit>
std::string emulate_grid(const DecodeCall& call, uint32_t seed, emulator::Counters& counters) {
  using S = Shared<kTiles, kSplit>;
  emulator::Machine machine(call.cluster_blocks, kThreads, sizeof(S), seed);
  machine.readable = reinterpret_cast<const char*>(call.rows);
  machine.readable_end = machine.readable + call.num_rows * kRowBytes;
  const int groups = (call.max_tokens * call.heads + S::kRows - 1) / S::kRows;
  for (int job = 0; job < call.num_jobs; job++)
    for (int group = 0; group < groups; group++)
      if (!machine.run({job, group, call.cluster_blocks}, [&machine, &call] {
            decode(*reinterpret_cast<S*>(machine.shared(block_rank())), call);
          }))
        return "job " + std::to_string(job) + ", row group " + std::to_string(group) + ": " +
               machine.error;
  counters = machine.counters;
  return "";
}

// Empty, or what went wrong.
inline std::string emulate(const DecodeCall& call, uint32_t seed, emulator::Counters& counters) {
  switch (call.row_tiles * 2 + (call.split != 0)) {
    case 2:
      return emulate_grid<1, false>(call, seed, counters);
    case 3:
      return emulate_grid<1, true>(call, seed, counters);
    case 4:
      return emulate_grid<2, false>(call, seed, counters);
    case 5:
      return emulate_grid<2, true>(call, seed, counters);
    case 8:
      return emulate_grid<4, false>(call, seed, counters);
    case 9:
      return emulate_grid<4, true>(call, seed, counters);
    default:
      return "no kernel for this number of tiles";
  }
}

inline int64_t shared_bytes(int row_tiles, int split) {
  switch (row_tiles * 2 + (split != 0)) {
    case 2:
      return sizeof(Shared<1, false>);
    case 3:
      return sizeof(Shared<1, true>);
    case 4:
      return sizeof(Shared<2, false>);
    case 5:
      return sizeof(Shared<2, true>);
    case 8:
      return sizeof(Shared<4, false>);
    case 9:
      return sizeof(Shared<4, true>);
    default:
      return -1;
  }
}

}  // namespace sparse_mla

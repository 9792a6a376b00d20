#pragma once
// What a launch is told. Filled by Python: `call.py` mirrors DecodeCall field by field, and
// `fusion.py` makes jobs as int32 [jobs, 4].
#include <cstdint>

namespace sparse_mla {

enum Number : int32_t { kE4m3 = 0, kHalf = 1, kBfloat16 = 2, kFloat = 3 };

// One cluster's work: consecutive query tokens of one request and the slots they choose from.
struct Job {
  int32_t first_token, tokens;
  int32_t begin, length;  // slots [begin, begin + length) of `indices` and `masks`
};

struct DecodeCall {
  const uint8_t* rows;     // [num_rows, 352], 16-byte aligned
  const void* query;       // [tokens, heads, 576]
  const int32_t* indices;  // row of each slot; -1 is an empty slot
  const uint32_t*
      masks;           // tokens of the job that use each slot (bit t = token t); null: all of them
  const Job* jobs;     // null: job j is query token j with slots [j * topk, (j + 1) * topk)
  const float* sinks;  // [heads], natural logits that take weight and give nothing; may be null
  void* out;           // [tokens, heads, 512]
  float* lse;          // [tokens, heads], natural, sinks included; may be null
  void* stream;        // device build only
  int64_t num_rows;
  int32_t query_type, out_type;
  int32_t heads, topk, num_jobs, max_tokens;
  int32_t cluster_blocks;  // 1..8
  int32_t row_tiles;       // 1, 2 or 4: query rows of a cluster in tiles of 16
  int32_t split;           // 1: probabilities as two halves each (22 bits), 0: as one
  float scale, out_scale;
};

}  // namespace sparse_mla

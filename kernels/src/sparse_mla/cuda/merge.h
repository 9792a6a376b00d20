#pragma once
// The blocks' partial results into one, through distributed shared memory: each block works out the
// weights of all partials, then writes its own part of the cluster's output.
#include "shapes.h"

namespace sparse_mla {

// Thread r: the weights of query row r, and its log-sum-exp. A sink takes part in the denominator
// and has no value.
template <class S>
DEV void weigh(S& sm, const DecodeCall& call, const Job& job, int r) {
  const int blocks = cluster_blocks(), at = row_group() * S::kRows + r;
  const bool is_real = at < job.tokens * call.heads;
  const bool has_sink = call.sinks && is_real;
  const float sink = has_sink ? call.sinks[at % call.heads] * kLog2E : kEmpty;
  float top = max_of(kEmpty, sink), tops[kMaxBlocks], sums[kMaxBlocks];
#pragma unroll
  for (int b = 0; b < kMaxBlocks; b++) {
    tops[b] = b < blocks ? remote_load(&sm.row_max[r], b) : kEmpty;
    sums[b] = 0.f;
    if (b < blocks)
      for (int slice = 0; slice < S::kSlices; slice++)
        sums[b] += remote_load(&sm.row_sum[slice][r], b);
    top = max_of(top, tops[b]);
  }
  float denominator = has_sink ? exp2_of(sink - top + kProbBits) : 0.f;
#pragma unroll
  for (int b = 0; b < kMaxBlocks; b++) denominator += sums[b] * exp2_of(tops[b] - top);
  const bool is_empty = denominator == 0.f;  // no row, no sink: zeros
  const float scale = is_empty ? 0.f : call.out_scale / denominator;
#pragma unroll
  for (int b = 0; b < kMaxBlocks; b++)
    if (b < blocks) sm.weight[b][r] = exp2_of(tops[b] - top) * scale;
  if (call.lse && is_real && block_rank() == 0)
    call.lse[static_cast<size_t>(job.first_token) * call.heads + at] =
        is_empty ? bits_float(0xff800000u) : (top + log2_of(denominator) - kProbBits) * kLn2;
}

DEV uint32_t bfloat16_bits(float x) {  // nearest, ties to even; NaN stays NaN
  uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

DEV uint32_t bfloat16_pair(float low, float high) {
  return bfloat16_bits(low) | bfloat16_bits(high) << 16;
}

DEV void store_output(const DecodeCall& call, size_t at, Floats4 v) {
  if (call.out_type == kFloat) {
    *reinterpret_cast<Floats4*>(static_cast<float*>(call.out) + at) = v;
    return;
  }
  const bool is_half = call.out_type == kHalf;
  const Words2 words{is_half ? pack_halves(v.x, v.y) : bfloat16_pair(v.x, v.y),
                     is_half ? pack_halves(v.z, v.w) : bfloat16_pair(v.z, v.w)};
  *reinterpret_cast<Words2*>(static_cast<uint16_t*>(call.out) + at) = words;
}

template <class S>
DEV void merge(S& sm, const DecodeCall& call, const Job& job) {
  const int blocks = cluster_blocks(), rank = block_rank();
  if (thread_index() < S::kRows) weigh(sm, call, job, thread_index());
  block_sync();

  constexpr int kPerRow = kValueDims / 4;
  const int row0 = row_group() * S::kRows, left = job.tokens * call.heads - row0;
  const int pieces = (left < S::kRows ? left : S::kRows) * kPerRow;
  for (int i = pieces * rank / blocks + thread_index(); i < pieces * (rank + 1) / blocks;
       i += kThreads) {
    const int r = i / kPerRow, d = i % kPerRow * 4;
    Floats4 sum{0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int b = 0; b < kMaxBlocks; b++) {
      if (b >= blocks) break;
      const Floats4 part = remote_load4(&sm.partial[r][d], b);
      const float weight = sm.weight[b][r];
      sum.x = multiply_add(part.x, weight, sum.x);
      sum.y = multiply_add(part.y, weight, sum.y);
      sum.z = multiply_add(part.z, weight, sum.z);
      sum.w = multiply_add(part.w, weight, sum.w);
    }
    const size_t row = static_cast<size_t>(job.first_token) * call.heads + row0 + r;
    store_output(call, row * kValueDims + d, sum);
  }
}

}  // namespace sparse_mla

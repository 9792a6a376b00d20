#pragma once
// The port on a GPU: sm_90a, sm_100a, sm_103a. Inline PTX, so that what is used is what is written.
#define DEV __device__ __forceinline__

namespace sparse_mla {

using Mbarrier = uint64_t;

DEV uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Where am I. The grid is (blocks of a cluster, jobs, row groups).
DEV int thread_index() { return threadIdx.x; }
DEV int job_index() { return blockIdx.y; }
DEV int row_group() { return blockIdx.z; }
DEV int block_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEV int cluster_blocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// Barriers among threads.
DEV void warp_sync() { __syncwarp(); }  // orders shared memory too; a shuffle does not
DEV void block_sync() { __syncthreads(); }
DEV void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Barriers in shared memory.
DEV void mbarrier_init(Mbarrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
               : "memory");
}
DEV void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEV void mbarrier_expect(Mbarrier* b, uint32_t bytes) {  // arrives, with `bytes` still to come
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}
DEV void mbarrier_arrive(Mbarrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
DEV void mbarrier_wait(Mbarrier* b, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred done;\nAGAIN_%=:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra AGAIN_%=;\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
DEV void bulk_load(void* to, const void* from, uint32_t bytes, Mbarrier* b) {  // multiples of 16
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(b))
      : "memory");
}

// Shared memory of another block of the cluster, named by this block's own address.
DEV uint32_t remote_address(const void* p, int rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
  return address;
}
DEV float remote_load(const float* p, int rank) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(value)
               : "r"(remote_address(p, rank))
               : "memory");
  return value;
}
DEV Floats4 remote_load4(const float* p, int rank) {
  Floats4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(remote_address(p, rank))
               : "memory");
  return v;
}

// Warp collectives.
DEV float shuffle_xor(float value, int lanes) { return __shfl_xor_sync(~0u, value, lanes); }
DEV uint32_t ballot(bool claim) { return __ballot_sync(~0u, claim); }
DEV void load_matrices(uint32_t (&to)[4],
                       const uint16_t* row) {  // lane l names row l % 8 of matrix l / 8
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
DEV void load_matrices_transposed(uint32_t (&to)[4], const uint16_t* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
// d[16x8] += a[16x16] b[16x8]: halves in, floats accumulated.
DEV void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Registers a warpgroup holds from here on: a multiple of 8.
template <int kCount>
DEV void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
DEV void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Numbers. Pairs of halves travel in one word, the first in its low half.
DEV uint32_t pack_halves(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
DEV float low_half(uint32_t pair) {
  float value;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(value) : "r"(pair));
  return value;
}
DEV float high_half(uint32_t pair) {
  float value;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(pair));
  return value;
}
DEV uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
}  // namespace sparse_mla
#include "e2m1.h"
namespace sparse_mla {

DEV uint32_t e4m3_pair(uint32_t two_bytes) {
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(two_bytes)));
  return pair;
}
DEV void e2m1_pairs(uint32_t (&pairs)[4], uint32_t eight_codes) {  // the low nibble comes first
#if __CUDA_ARCH__ >= 1000
  asm("{.reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, %4;\n"
      " cvt.rn.f16x2.e2m1x2 %0, a; cvt.rn.f16x2.e2m1x2 %1, b;\n"
      " cvt.rn.f16x2.e2m1x2 %2, c; cvt.rn.f16x2.e2m1x2 %3, d;}"
      : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
      : "r"(eight_codes));
#else
  e2m1_pairs_by_arithmetic(pairs, eight_codes);
#endif
}
DEV float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV float log2_of(float x) { return __log2f(x); }
DEV uint32_t float_bits(float x) { return __float_as_uint(x); }
DEV float bits_float(uint32_t x) { return __uint_as_float(x); }
DEV float max_of(float a, float b) { return fmaxf(a, b); }
DEV float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

}  // namespace sparse_mla

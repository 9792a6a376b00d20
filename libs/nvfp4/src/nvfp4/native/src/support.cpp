// What needs no instruction set: which one this processor has, and the check of indices.
#include "nvfp4.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {
#if defined(__x86_64__)
// Linux lends the tile registers to a process that asks (Documentation/arch/x86/xstate.rst).
bool may_use_amx() {
  constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE
  constexpr unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if ((d & (AMX_BF16 | AMX_TILE)) != (AMX_BF16 | AMX_TILE)) return false;
  if (!__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512bf16")) return false;
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif
}  // namespace

extern "C" {
// Bit i: the i-th of library.py's Isa runs here.
uint32_t NVFP4_ENTRY(nvfp4_supported)() {
  uint32_t bits = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("f16c");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  bits |= avx2 ? 2 : 0;
  bits |= avx512 ? 4 : 0;
  bits |= avx512 && may_use_amx() ? 8 : 0;
#endif
  return bits;
}

// Position of the first index that is neither -1 nor in [0, rows), or -1.
int64_t NVFP4_ENTRY(nvfp4_first_bad_index)(const int32_t* indices, const int32_t* counts,
                                           int64_t tokens, int64_t slots, int64_t rows) {
  for (int64_t token = 0; token < tokens; token++) {
    const int32_t* of_token = indices + token * slots;
    int64_t count = counts ? counts[token] : slots;
    int bad = 0;
    for (int64_t slot = 0; slot < count; slot++)
      bad |= of_token[slot] < -1 || of_token[slot] >= rows;
    for (int64_t slot = 0; bad && slot < count; slot++)
      if (of_token[slot] < -1 || of_token[slot] >= rows) return token * slots + slot;
  }
  return -1;
}
}

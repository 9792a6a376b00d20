// The C interface that library.py binds, and what every source file here agrees on.
//
// Each source is compiled once per instruction set with -DNVFP4_ISA=name; its entry points carry
// that name, everything else stays in an unnamed namespace. No file here may define an inline
// function of external linkage (none of the standard library's either): the linker keeps one copy
// for all instruction sets, and it could be the one an older processor cannot run.
#pragma once
#include <cstdint>

#define NVFP4_JOIN2(a, b) a##_##b
#define NVFP4_JOIN(a, b) NVFP4_JOIN2(a, b)
#define NVFP4_ENTRY(name) __attribute__((visibility("default"))) NVFP4_JOIN(name, NVFP4_ISA)

extern "C" {
// Element types of values and queries; library.py names them alike.
enum nvfp4_dtype : int32_t { NVFP4_FLOAT32 = 0, NVFP4_BFLOAT16 = 1, NVFP4_FLOAT16 = 2 };

// One attention call. Work item i is token i / spans, heads [i % spans * span_heads, + span_heads).
struct nvfp4_attention {
  const uint8_t* rows;      // [.., 352]
  const void* queries;      // [tokens, heads, 576]
  const int32_t* indices;   // [tokens, slots], -1 = empty, checked by the caller
  const int32_t* counts;    // [tokens] or null: slots of each token that count
  const float* sinks;       // [heads] or null
  float* out;               // [tokens, heads, 512]
  float* lse;               // [tokens, heads], natural logarithm
  int64_t heads;
  int64_t slots;
  int64_t span_heads;
  float scale;
  int32_t query_dtype;      // NVFP4_FLOAT32 or NVFP4_BFLOAT16
};
}

namespace {
constexpr int LATENT = 512, ROPE = 64, WIDTH = 576, GROUP = 16, GROUPS = 32, ROW_BYTES = 352;
constexpr int ROPE_AT = 256;

constexpr int scale_at(int group) { return 320 + 8 * (group & 3) + (group >> 2); }

// Scale candidates in e4m3 steps from amax / 6, as SEARCH_STEPS in row.py.
constexpr int SEARCH_STEPS[] = {0, 1, 2, 3, 4, 5, 6, -1};

constexpr uint8_t MIN_SCALE_BYTE = 0x01, MAX_SCALE_BYTE = 0x7e, NAN_BYTE = 0x7f;
constexpr float MIN_SCALE = 0.001953125f, MAX_SCALE = 448.f;
}  // namespace

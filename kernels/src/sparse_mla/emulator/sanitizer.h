#pragma once
// What ThreadSanitizer is told in the build of races.cpp; nothing in every other build.
#include <cstddef>
#include <cstdint>

namespace sparse_mla::emulator::sanitizer {

#ifdef SPARSE_MLA_RACES
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_write_range(void* address, unsigned long bytes);
void __tsan_read_range(void* address, unsigned long bytes);
}
constexpr unsigned kNoOrder = 1;  // a switch of fibers orders nothing

constexpr size_t kStackFactor = 4;
inline void* current() { return __tsan_get_current_fiber(); }
inline void* new_fiber() { return __tsan_create_fiber(0); }
inline void switch_to(void* fiber) { __tsan_switch_to_fiber(fiber, kNoOrder); }
inline void acquire(const void* at) { __tsan_acquire(const_cast<void*>(at)); }
inline void release(const void* at) { __tsan_release(const_cast<void*>(at)); }
inline void writes(void* at, size_t bytes) { __tsan_write_range(at, bytes); }
inline void reads(const void* at, size_t bytes) { __tsan_read_range(const_cast<void*>(at), bytes); }

// The copy engine that serves a barrier: copies of different barriers are not ordered with each
// other.
inline void* engine_of(const void* barrier) {
  static void* engines[64];
  void*& engine = engines[reinterpret_cast<uintptr_t>(barrier) / 8 % 64];
  if (!engine) engine = new_fiber();
  return engine;
}
#else
constexpr size_t kStackFactor = 1;
inline void* current() { return nullptr; }
inline void* new_fiber() { return nullptr; }
inline void switch_to(void*) {}
inline void acquire(const void*) {}
inline void release(const void*) {}
inline void writes(void*, size_t) {}
inline void reads(const void*, size_t) {}
inline void* engine_of(const void*) { return nullptr; }
#endif

}  // namespace sparse_mla::emulator::sanitizer

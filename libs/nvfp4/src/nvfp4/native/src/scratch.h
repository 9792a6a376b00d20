// Scratch memory of one call, handed out in pieces; freed scratch is kept for the next call.
//
// Fresh memory costs a page fault every 4 KB: some 200 us for a call that takes 200. At most KEPT
// buffers of one instruction set stay behind, each as large as its largest call needed.
#pragma once
#include <cstdlib>

#include "nvfp4.h"

namespace {
constexpr size_t ALIGNMENT = 64;
constexpr size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

class Scratch {
 public:
  explicit Scratch(size_t bytes) : block_(take_kept(bytes)) {
    if (block_) return;
    block_ = static_cast<Block*>(aligned_alloc(ALIGNMENT, sizeof(Block) + aligned(bytes)));
    if (block_) block_->bytes = bytes;
  }
  ~Scratch() {
    for (Block*& slot : kept_) {
      Block* empty = nullptr;
      if (block_ && __atomic_compare_exchange_n(&slot, &empty, block_, false, __ATOMIC_ACQ_REL,
                                                __ATOMIC_RELAXED))
        return;
    }
    free(block_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool is_there() const { return block_ != nullptr; }

  // Its contents are whatever the last call left.
  template <typename T>
  T* take(size_t count) {
    T* piece = reinterpret_cast<T*>(reinterpret_cast<char*>(block_ + 1) + used_);
    used_ += aligned(count * sizeof(T));
    return piece;
  }

 private:
  struct alignas(ALIGNMENT) Block {
    size_t bytes;
  };

  static Block* take_kept(size_t bytes) {
    for (Block*& slot : kept_) {
      Block* block = __atomic_exchange_n(&slot, nullptr, __ATOMIC_ACQ_REL);
      if (block && block->bytes >= bytes) return block;
      free(block);
    }
    return nullptr;
  }

  static constexpr int KEPT = 8;
  static Block* kept_[KEPT];

  Block* block_;
  size_t used_ = 0;
};

Scratch::Block* Scratch::kept_[Scratch::KEPT];
}  // namespace

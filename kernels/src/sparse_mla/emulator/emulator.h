#pragma once
// A cluster on one CPU thread: every CUDA thread is a fiber that runs until it has to wait.
//
// Modelled: shared memory per block and its sight from other blocks; barriers of a warp, a named
// group, a block and the cluster; mbarriers with phases and bytes; bulk copies that land late and
// in any order; ldmatrix and mma by fragment. What nothing has written reads as NaN, and so does
// the memory of a block that has left. A wrong use (alignment, range, lanes at different
// instructions, a deadlock) ends the run with an error that says what and where. Built with
// SPARSE_MLA_RACES it tells ThreadSanitizer what orders what (and a shuffle, as on a GPU, orders
// nothing): see races.cpp. Not modelled: proxies and their fences, bank conflicts outside ldmatrix,
// time. x86-64 only.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace sparse_mla {

struct Mbarrier {
  int32_t bytes;  // still to come in this phase
  uint16_t pending;
  uint8_t arrivals, phase;
};
static_assert(sizeof(Mbarrier) == 8, "as on the device, so that Shared has the same size");

}  // namespace sparse_mla

namespace sparse_mla::emulator {

// A meeting of a fixed number of threads; who waits watches `round`.
struct Meeting {
  uint16_t here = 0;
  uint8_t round = 0;
};

struct Warp {
  Meeting meeting, collective;
  const char* instruction = nullptr;  // what the lanes that wait are at
  uint32_t in[32][10], out[32][4];
};
using Work = void (*)(Warp&);  // fills `out` from `in` for all 32 lanes

struct Block {
  char* shared;
  int running;
  Meeting named[16];  // 0 is the whole block
};

struct Fiber {
  void* stack_pointer;
  const uint8_t* watched;  // waits while *watched == seen
  uint8_t seen;
  bool is_done;
  int block, thread;
  const char* waits_for;
  void* sanitizer;
};

struct Copy {
  char* to;
  const char* from;
  uint32_t bytes;
  Mbarrier* barrier;
};

struct Counters {
  int64_t loaded_bytes, copies, mmas, matrix_loads, matrix_conflicts;
};

// Where a cluster runs in the grid.
struct Place {
  int job, row_group, blocks;
};

class Machine {
 public:
  // A seed other than 0 shuffles who runs first and which copies land when.
  Machine(int blocks, int threads, size_t shared_bytes, uint32_t seed);
  ~Machine();
  // Runs one cluster to its end; false: `error` says what went wrong.
  bool run(Place where, std::function<void()> body);

  Place place{};
  Fiber* self = nullptr;
  Counters counters{};
  std::string error;
  const char* readable = nullptr;  // what bulk copies may read
  const char* readable_end = nullptr;

  // What the port's functions stand on.
  int threads() const { return threads_; }
  char* shared(int block) { return blocks_[block].shared; }
  void sync_warp();
  void sync_named(int id, int parties);
  void sync_cluster();
  const uint32_t* collective(const char* instruction, const uint32_t* in, int words, Work work);
  void init(Mbarrier* b, int arrivals);
  void arrive(Mbarrier* b, uint32_t bytes_to_come);
  void wait(Mbarrier* b, uint32_t parity);
  void copy(Copy c);
  const char* remote(const void* p, size_t bytes, int block);
  void check_shared(const void* p, size_t bytes, size_t alignment, const char* what);

 private:
  static void enter();
  bool run_fibers();
  bool land_copies(bool all);
  void meet(Meeting& meeting, int parties, const char* what, bool orders_memory);
  void wait_while(const uint8_t* watched, uint8_t seen, const char* what);
  void settle(Mbarrier* b);
  void switch_to(Fiber& fiber);
  void switch_back(void** save);
  [[noreturn]] void fail(const std::string& what);
  std::string deadlock() const;
  Block& block() { return blocks_[self->block]; }
  Warp& warp() { return warps_[(self->block * threads_ + self->thread) / 32]; }

  int threads_;
  size_t shared_bytes_;
  bool shuffles_;
  std::mt19937 random_;
  std::vector<Block> blocks_;
  std::vector<Warp> warps_;
  std::vector<Fiber> fibers_;
  std::vector<int> order_;  // of warps
  std::vector<Copy> in_flight_;
  Meeting cluster_;
  std::function<void()> body_;
  void* scheduler_ = nullptr;
  void* scheduler_fiber_ = nullptr;  // as the sanitizer knows it
  char* stacks_;
  char* memory_;
  size_t running_ = 0;
};

inline Machine* machine = nullptr;  // the one that runs now; the library's entry holds a lock

}  // namespace sparse_mla::emulator

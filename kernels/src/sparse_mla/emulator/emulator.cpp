// The emulator's scheduler and barriers; see emulator.h for what it models.
#include "emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "sanitizer.h"

// The ten or so instructions of a switch: callee-saved registers and the stack pointer.
extern "C" void sparse_mla_switch(void** save, void* load);
asm(R"(
.globl sparse_mla_switch
.hidden sparse_mla_switch
sparse_mla_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi); movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

namespace sparse_mla::emulator {

namespace {

constexpr size_t kStackBytes = 32768 * sanitizer::kStackFactor;
constexpr int kPoison = 0xff;  // NaN as float, half, e4m3 and scale

char* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(p);
}
size_t page_multiple(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void poison(char* at, size_t bytes) {
  std::memset(at, kPoison, bytes);
  sanitizer::writes(at, bytes);
}

}  // namespace

Machine::Machine(int blocks, int threads, size_t shared_bytes, uint32_t seed)
    : threads_(threads),
      shared_bytes_(page_multiple(shared_bytes)),
      shuffles_(seed != 0),
      random_(seed),
      blocks_(blocks),
      warps_(blocks * threads / 32),
      fibers_(static_cast<size_t>(blocks) * threads) {
  stacks_ = map(fibers_.size() * kStackBytes);
  memory_ = map(blocks_.size() * shared_bytes_);
  for (size_t b = 0; b < blocks_.size(); b++) blocks_[b].shared = memory_ + b * shared_bytes_;
  for (size_t w = 0; w < warps_.size(); w++) order_.push_back(static_cast<int>(w));
  in_flight_.reserve(fibers_.size());  // no allocation while fibers run
}

Machine::~Machine() {
  munmap(stacks_, fibers_.size() * kStackBytes);
  munmap(memory_, blocks_.size() * shared_bytes_);
}

bool Machine::run(Place where, std::function<void()> body) {
  place = where;
  body_ = std::move(body);
  machine = this;
  error.clear();
  cluster_ = {};
  in_flight_.clear();
  for (Warp& w : warps_) w.meeting = w.collective = {};
  for (Block& b : blocks_) {
    poison(b.shared, shared_bytes_);
    b.running = threads_;
    std::fill(std::begin(b.named), std::end(b.named), Meeting{});
  }
  for (size_t i = 0; i < fibers_.size(); i++) {
    void** top = reinterpret_cast<void**>(stacks_ + (i + 1) * kStackBytes);
    *--top = nullptr;  // keeps the ABI's alignment of the stack at entry
    *--top = reinterpret_cast<void*>(&Machine::enter);
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    const int thread = static_cast<int>(i);
    fibers_[i] = {
        top, nullptr, 0, false, thread / threads_, thread % threads_, "", sanitizer::new_fiber()};
  }
  running_ = fibers_.size();
  scheduler_fiber_ = sanitizer::current();
  while (running_ > 0 && error.empty()) {
    const bool ran = run_fibers();
    const bool landed = land_copies(!ran);
    if (!ran && !landed && error.empty()) error = deadlock();
  }
  sanitizer::acquire(this);
  return error.empty();
}

// Every fiber that can go on does, up to its next wait. False: none could.
bool Machine::run_fibers() {
  bool any = false;
  if (shuffles_) std::shuffle(order_.begin(), order_.end(), random_);
  for (int w : order_) {
    const int turn = shuffles_ ? static_cast<int>(random_() % 32) : 0;
    for (int lane = 0; lane < 32; lane++) {
      Fiber& f = fibers_[w * 32 + (lane ^ turn)];
      if (f.is_done || (f.watched && *f.watched == f.seen)) continue;
      any = true;
      switch_to(f);
      if (!error.empty()) return true;
    }
  }
  return any;
}

// Copies never land in the pass that asked for them; with a seed some stay away longer.
bool Machine::land_copies(bool all) {
  bool any = false;
  for (size_t i = in_flight_.size(); i-- > 0;) {
    if (!all && shuffles_ && random_() % 4 == 0) continue;
    const Copy c = in_flight_[i];
    in_flight_[i] = in_flight_.back();
    in_flight_.pop_back();
    sanitizer::switch_to(sanitizer::engine_of(c.barrier));
    sanitizer::acquire(c.to);  // the copy follows what the thread that asked for it did before
    std::memcpy(c.to, c.from, c.bytes);
    sanitizer::writes(c.to, c.bytes);
    sanitizer::release(c.barrier);
    sanitizer::switch_to(scheduler_fiber_);
    c.barrier->bytes -= static_cast<int32_t>(c.bytes);
    settle(c.barrier);
    any = true;
  }
  return any;
}

void Machine::switch_to(Fiber& fiber) {
  self = &fiber;
  sanitizer::switch_to(fiber.sanitizer);
  sparse_mla_switch(&scheduler_, fiber.stack_pointer);
}

void Machine::switch_back(void** save) {
  sanitizer::switch_to(scheduler_fiber_);
  sparse_mla_switch(save, scheduler_);
}

void Machine::enter() {
  Machine& m = *machine;
  m.body_();
  m.self->is_done = true;
  m.running_--;
  if (--m.block().running == 0) poison(m.block().shared, m.shared_bytes_);  // gone: others read NaN
  sanitizer::release(&m);
  void* unused;
  m.switch_back(&unused);
  __builtin_unreachable();
}

void Machine::wait_while(const uint8_t* watched, uint8_t seen, const char* what) {
  while (*watched == seen) {
    self->watched = watched;
    self->seen = seen;
    self->waits_for = what;
    switch_back(&self->stack_pointer);
  }
  self->watched = nullptr;
}

void Machine::meet(Meeting& meeting, int parties, const char* what, bool orders_memory) {
  const uint8_t round = meeting.round;
  const char* token =
      reinterpret_cast<const char*>(&meeting) + round % 2;  // one for each round in progress
  if (orders_memory) sanitizer::release(token);
  if (++meeting.here < parties) {
    wait_while(&meeting.round, round, what);
  } else {
    meeting.here = 0;
    meeting.round++;
  }
  if (orders_memory) sanitizer::acquire(token);
}

void Machine::sync_warp() { meet(warp().meeting, 32, "warp_sync", true); }
void Machine::sync_named(int id, int parties) {
  meet(block().named[id], parties, id ? "named_sync" : "block_sync", true);
}
void Machine::sync_cluster() { meet(cluster_, threads_ * place.blocks, "cluster_sync", true); }

// The last lane to arrive works for all of them. Orders no memory: a shuffle on a GPU does not
// either.
const uint32_t* Machine::collective(const char* instruction, const uint32_t* in, int words,
                                    Work work) {
  Warp& w = warp();
  const int lane = self->thread % 32;
  if (w.collective.here > 0 && w.instruction != instruction)
    fail("lanes of a warp are at different instructions");
  w.instruction = instruction;
  for (int i = 0; i < words; i++) w.in[lane][i] = in[i];
  if (w.collective.here == 31) work(w);
  meet(w.collective, 32, instruction, false);
  return w.out[lane];
}

void Machine::init(Mbarrier* b, int arrivals) {
  check_shared(b, sizeof *b, 8, "mbarrier");
  sanitizer::writes(b, sizeof *b);
  *b = {0, static_cast<uint16_t>(arrivals), static_cast<uint8_t>(arrivals), 0};
}

void Machine::arrive(Mbarrier* b, uint32_t bytes_to_come) {
  check_shared(b, sizeof *b, 8, "mbarrier");
  if (b->pending == 0 || b->pending > b->arrivals)
    fail("an arrival that the mbarrier does not expect");
  sanitizer::reads(b, sizeof *b);
  sanitizer::release(b);
  b->bytes += static_cast<int32_t>(bytes_to_come);
  b->pending--;
  settle(b);
}

void Machine::wait(Mbarrier* b, uint32_t parity) {
  check_shared(b, sizeof *b, 8, "mbarrier");
  sanitizer::reads(b, sizeof *b);
  wait_while(&b->phase, static_cast<uint8_t>(parity), "mbarrier_wait");
  sanitizer::acquire(b);
}

void Machine::settle(Mbarrier* b) {
  if (b->pending > 0 || b->bytes != 0) return;
  b->phase ^= 1;
  b->pending = b->arrivals;
}

void Machine::copy(Copy c) {
  check_shared(c.to, c.bytes, 16, "bulk copy");
  check_shared(c.barrier, sizeof *c.barrier, 8, "mbarrier");
  if (reinterpret_cast<uintptr_t>(c.from) % 16 || c.bytes % 16)
    fail("a bulk copy that is no multiple of 16 bytes");
  if (c.from < readable || c.from + c.bytes > readable_end)
    fail("a bulk copy from outside the cache");
  poison(c.to, c.bytes);  // whoever reads before the barrier says so reads NaN
  sanitizer::release(c.to);
  in_flight_.push_back(c);
  counters.copies++;
  counters.loaded_bytes += c.bytes;
}

// The same place in another block's shared memory.
const char* Machine::remote(const void* p, size_t bytes, int block_rank) {
  check_shared(p, bytes, bytes, "remote load");
  if (block_rank < 0 || block_rank >= place.blocks) fail("a remote load from outside the cluster");
  return blocks_[block_rank].shared + (static_cast<const char*>(p) - block().shared);
}

void Machine::check_shared(const void* p, size_t bytes, size_t alignment, const char* what) {
  const char* at = static_cast<const char*>(p);
  const char* from = block().shared;
  if (at < from || at + bytes > from + shared_bytes_)
    fail(std::string(what) + " outside the block's shared memory");
  if (reinterpret_cast<uintptr_t>(p) % alignment) fail(std::string(what) + " not aligned");
}

void Machine::fail(const std::string& what) {
  if (error.empty())
    error = what + " (block " + std::to_string(self->block) + ", warp " +
            std::to_string(self->thread / 32) + ", lane " + std::to_string(self->thread % 32) + ")";
  switch_back(&self->stack_pointer);
  __builtin_unreachable();
}

std::string Machine::deadlock() const {
  std::string text = "deadlock:", last;
  for (const Fiber& f : fibers_) {
    if (f.is_done) continue;
    const std::string line = " block " + std::to_string(f.block) + " warp " +
                             std::to_string(f.thread / 32) + " waits at " + f.waits_for + ";";
    if (line != last && text.size() < 400) text += line;
    last = line;
  }
  return text;
}

}  // namespace sparse_mla::emulator

// A program that ThreadSanitizer watches: small random calls on the emulator, in which only what
// orders memory on a GPU orders memory here. It catches what a lucky schedule hides: a missing
// __syncwarp, a missing barrier around the exchange, a partial read before the cluster has met.
//   g++ -DSPARSE_MLA_RACES -c emulator.cpp, and this file with -fsanitize=thread; no report is a
//   pass.
#include <cstdio>

#include "emulate.h"

using namespace sparse_mla;

namespace {

template <class T>
std::vector<T> filled(size_t count, T (*next)(std::mt19937&), std::mt19937& random) {
  std::vector<T> values(count);
  for (T& v : values) v = next(random);
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  const int tiles = argc > 1 ? std::atoi(argv[1]) : 1, split = argc > 2 ? std::atoi(argv[2]) : 0;
  const int blocks = argc > 3 ? std::atoi(argv[3]) : 2;
  const uint32_t seed = argc > 4 ? std::atoi(argv[4]) : 1;
  const int heads = 16 * tiles, slots = 300, num_rows = 64;
  std::mt19937 random(seed);
  auto bytes = filled<uint8_t>(
      num_rows * kRowBytes + 16, [](std::mt19937& r) -> uint8_t { return r() & 0x37; }, random);
  auto query = filled<uint16_t>(
      heads * kDims, [](std::mt19937& r) -> uint16_t { return 0x3c00 | (r() & 0x83ff); }, random);
  auto indices = filled<int32_t>(
      slots, [](std::mt19937& r) { return static_cast<int32_t>(r() % 65) - 1; }, random);
  std::vector<float> out(heads * kValueDims), lse(heads);
  DecodeCall call = {};
  call.rows = bytes.data() + (16 - reinterpret_cast<uintptr_t>(bytes.data()) % 16) % 16;
  call.query = query.data();
  call.indices = indices.data();
  call.out = out.data();
  call.lse = lse.data();
  call.num_rows = num_rows;
  call.query_type = kHalf;
  call.out_type = kFloat;
  call.heads = heads;
  call.topk = slots;
  call.num_jobs = call.max_tokens = 1;
  call.cluster_blocks = blocks;
  call.row_tiles = tiles;
  call.split = split;
  call.scale = 0.01f;
  call.out_scale = 1.f;
  emulator::Counters counters;
  const std::string error = emulate(call, seed, counters);
  std::printf("%s\n", error.empty() ? "ran to its end" : error.c_str());
  std::fflush(stdout);
  return error.empty() ? 0 : 1;
}

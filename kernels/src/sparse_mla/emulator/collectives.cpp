// What a warp does as one: votes, shuffles, ldmatrix and mma.m16n8k16, by the fragment tables of
// the PTX ISA. Apart from the kernel's own code, because ThreadSanitizer must see that alone
// (races.cpp).
#include "collectives.h"

#include <vector>

#include "halves.h"

namespace sparse_mla::emulator {

void shuffle(Warp& w) {
  for (uint32_t lane = 0; lane < 32; lane++) w.out[lane][0] = w.in[lane ^ w.in[lane][1]][0];
}

void vote(Warp& w) {
  uint32_t votes = 0;
  for (int lane = 0; lane < 32; lane++) votes |= w.in[lane][0] << lane;
  for (int lane = 0; lane < 32; lane++) w.out[lane][0] = votes;
}

// Lane l names row l % 8 of matrix l / 8; it receives, of each matrix, columns 2 (l % 4) and + 1 of
// row l / 4 (or, transposed, rows 2 (l % 4) and + 1 of column l / 4).
template <bool kTransposed>
static void load_matrices_of(Warp& w) {
  const uint16_t* row[32];
  for (int lane = 0; lane < 32; lane++)
    row[lane] = reinterpret_cast<const uint16_t*>(w.in[lane][0] |
                                                  static_cast<uint64_t>(w.in[lane][1]) << 32);
  machine->counters.matrix_loads++;
  for (int m = 0; m < 4; m++) {
    uint32_t groups = 0;  // of 16-byte bank groups: eight rows in eight groups is one pass
    for (int r = 0; r < 8; r++)
      groups |= 1u << (reinterpret_cast<uintptr_t>(row[8 * m + r]) / 16 % 8);
    machine->counters.matrix_conflicts += 8 - __builtin_popcount(groups);
    for (int lane = 0; lane < 32; lane++) {
      const int at = lane / 4, pair = 2 * (lane % 4);
      const uint16_t first = kTransposed ? row[8 * m + pair][at] : row[8 * m + at][pair];
      const uint16_t second = kTransposed ? row[8 * m + pair + 1][at] : row[8 * m + at][pair + 1];
      w.out[lane][m] = first | static_cast<uint32_t>(second) << 16;
    }
  }
}

void load_matrices(Warp& w) { load_matrices_of<false>(w); }
void load_matrices_transposed(Warp& w) { load_matrices_of<true>(w); }

static const float* half_values() {  // all 65,536 halves as floats
  static const std::vector<float> values = [] {
    std::vector<float> v(65536);
    for (uint32_t h = 0; h < 65536; h++) v[h] = half_to_float(static_cast<uint16_t>(h));
    return v;
  }();
  return values.data();
}

// d += a b. Products and their sum of 16 are exact (double), and one rounding to float follows. The
// hardware's own order and truncation are not published; its results differ in the last bits.
void multiply_matrices(Warp& w) {
  const float* value = half_values();
  double a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const int g = lane / 4, t = 2 * (lane % 4);
    const uint32_t* in = w.in[lane];
    for (int i = 0; i < 2; i++) {
      const int shift = 16 * i;
      a[g][t + i] = value[in[0] >> shift & 0xffff];
      a[g + 8][t + i] = value[in[1] >> shift & 0xffff];
      a[g][t + 8 + i] = value[in[2] >> shift & 0xffff];
      a[g + 8][t + 8 + i] = value[in[3] >> shift & 0xffff];
      b[t + i][g] = value[in[4] >> shift & 0xffff];
      b[t + 8 + i][g] = value[in[5] >> shift & 0xffff];
      d[g][t + i] = bits_float(in[6 + i]);
      d[g + 8][t + i] = bits_float(in[8 + i]);
    }
  }
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++)
      for (int column = 0; column < 8; column++) d[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < 32; lane++) {
    const int g = lane / 4, t = 2 * (lane % 4);
    for (int i = 0; i < 2; i++) {
      w.out[lane][i] = float_bits(static_cast<float>(d[g][t + i]));
      w.out[lane][2 + i] = float_bits(static_cast<float>(d[g + 8][t + i]));
    }
  }
  machine->counters.mmas++;
}

}  // namespace sparse_mla::emulator

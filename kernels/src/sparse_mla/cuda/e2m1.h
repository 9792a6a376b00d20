#pragma once
// Four-bit values without the instruction for them: what Hopper runs, and the emulator's tests
// compare with the format's table.

namespace sparse_mla {

// Eight codes, the low nibble first, to four pairs of halves. Sign, exponent and mantissa bits go
// where a half has them; 2^14 makes up for the exponent's bias and turns the subnormal code into
// 0.5.
DEV void e2m1_pairs_by_arithmetic(uint32_t (&pairs)[4], uint32_t eight_codes) {
  for (int i = 0; i < 4; i++) {
    uint32_t byte = eight_codes >> (8 * i);
    uint32_t bits = ((byte << 9) & 0x0e00u) | ((byte << 12) & 0x8000u) |
                    ((byte << 21) & 0x0e000000u) | ((byte << 24) & 0x80000000u);
    pairs[i] = multiply_halves(bits, 0x74007400u);
  }
}

}  // namespace sparse_mla

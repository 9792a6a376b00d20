#pragma once
// What a warp does as one, on the operands of its 32 lanes.
#include "emulator.h"

namespace sparse_mla::emulator {

void shuffle(Warp& w);        // in: value, lanes to exclusive-or with
void vote(Warp& w);           // in: 0 or 1
void load_matrices(Warp& w);  // in: address of a row of 16 bytes
void load_matrices_transposed(Warp& w);
void multiply_matrices(Warp& w);  // in: a (4), b (2), d (4)

}  // namespace sparse_mla::emulator

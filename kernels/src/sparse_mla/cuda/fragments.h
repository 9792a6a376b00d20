#pragma once
// Which row of which 8x8 matrix a lane names to ldmatrix, so that the registers it gets back are
// the operands of mma.m16n8k16 (PTX ISA, "Matrix fragments"). Lane l names row l % 8 of matrix l
// / 8.
#include "shapes.h"

namespace sparse_mla {

// a: 16 query rows x 16 columns.
DEV const uint16_t* left_fragment(const uint16_t* base, int stride, int lane) {
  return base + (lane & 15) * stride + (lane >> 4) * 8;
}
// b, twice: 16 keys x 16 dims, of which the keys are the MMA's columns.
DEV const uint16_t* key_fragment(const uint16_t* base, int lane) {
  return base + ((lane & 7) + (lane >> 4) * 8) * kTileStride + (lane >> 3 & 1) * 8;
}
// b, twice, transposed on the way: 16 keys x 16 dims, of which the dims are the MMA's columns.
DEV const uint16_t* value_fragment(const uint16_t* base, int lane) {
  return base + (lane & 15) * kTileStride + (lane >> 4) * 8;
}

}  // namespace sparse_mla

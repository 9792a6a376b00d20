// One row unpacked in plain C++: shared by the portable codec and attention.
#pragma once
#include "nvfp4.h"
#include "tables.h"

namespace {
template <typename T>
inline void unpack_row(const uint8_t* row, T* to) {
  const Tables<T>& tables = tables_of(to);
  for (int g = 0; g < GROUPS; g++) {
    const T* products = tables.latent[row[scale_at(g)]];
    for (int i = 0; i < GROUP / 2; i++) {
      uint8_t pair = row[g * GROUP / 2 + i];
      to[g * GROUP + 2 * i] = products[pair & 15];
      to[g * GROUP + 2 * i + 1] = products[pair >> 4];
    }
  }
  for (int d = 0; d < ROPE; d++) to[LATENT + d] = tables.rope[row[ROPE_AT + d]];
}
}  // namespace

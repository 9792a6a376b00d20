#pragma once
// Everything the kernel needs from the hardware. One kernel body, two compilers: nvcc emits PTX for
// these functions, g++ runs them on the emulator, and nothing outside the two files below differs.
#include <cstdint>

struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};
struct alignas(8) Words2 {
  uint32_t x, y;
};
struct alignas(16) Floats4 {
  float x, y, z, w;
};
struct alignas(8) Floats2 {
  float x, y;
};

#ifdef __CUDACC__
#include "port_device.h"
#else
#include "../emulator/port_host.h"
#endif

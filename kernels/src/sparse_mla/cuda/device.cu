// The device build: one kernel per number of tiles and kind of probabilities, and a C face for
// Python. A launch neither allocates nor synchronises, so it can be captured into a CUDA graph.
#include <cuda_runtime.h>

#include "decode.h"

using namespace sparse_mla;

template <int kTiles, bool kSplit>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeCall call) {
  extern __shared__ __align__(128) unsigned char shared[];
  decode(*reinterpret_cast<Shared<kTiles, kSplit>*>(shared), call);
}

namespace {

using Kernel = void (*)(DecodeCall);
struct Variant {
  Kernel kernel;
  size_t shared_bytes;
};

bool find(int tiles, int split, Variant& found) {
  switch (tiles * 2 + (split != 0)) {
    case 2:
      found = {decode_kernel<1, false>, sizeof(Shared<1, false>)};
      return true;
    case 3:
      found = {decode_kernel<1, true>, sizeof(Shared<1, true>)};
      return true;
    case 4:
      found = {decode_kernel<2, false>, sizeof(Shared<2, false>)};
      return true;
    case 5:
      found = {decode_kernel<2, true>, sizeof(Shared<2, true>)};
      return true;
    case 8:
      found = {decode_kernel<4, false>, sizeof(Shared<4, false>)};
      return true;
    case 9:
      found = {decode_kernel<4, true>, sizeof(Shared<4, true>)};
      return true;
    default:
      return false;
  }
}

// Once per device and variant would do; it is a table write in the driver, and keeps no state here.
cudaError_t prepare(const Variant& v) {
  return cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(v.shared_bytes));
}

cudaLaunchConfig_t configure(const Variant& v, cudaLaunchAttribute* attribute, int blocks, int jobs,
                             int groups) {
  attribute->id = cudaLaunchAttributeClusterDimension;
  attribute->val.clusterDim.x = blocks;
  attribute->val.clusterDim.y = 1;
  attribute->val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks, jobs, groups);
  config.blockDim = dim3(kThreads, 1, 1);
  config.dynamicSmemBytes = v.shared_bytes;
  config.attrs = attribute;
  config.numAttrs = 1;
  return config;
}

}  // namespace

// All return a cudaError_t; 0 is success.
extern "C" int sparse_mla_decode(const DecodeCall* call) {
  Variant v;
  if (!find(call->row_tiles, call->split, v)) return cudaErrorInvalidValue;
  if (cudaError_t error = prepare(v); error != cudaSuccess) return error;
  const int rows = 16 * call->row_tiles,
            groups = (call->max_tokens * call->heads + rows - 1) / rows;
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config =
      configure(v, &attribute, call->cluster_blocks, call->num_jobs, groups);
  config.stream = static_cast<cudaStream_t>(call->stream);
  return cudaLaunchKernelEx(&config, v.kernel, *call);
}

// How many clusters of this size the current device runs at once.
extern "C" int sparse_mla_resident_clusters(int row_tiles, int split, int cluster_blocks,
                                            int* clusters) {
  Variant v;
  if (!find(row_tiles, split, v)) return cudaErrorInvalidValue;
  if (cudaError_t error = prepare(v); error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = configure(v, &attribute, cluster_blocks, 1, 1);
  return cudaOccupancyMaxActiveClusters(clusters, v.kernel, &config);
}

extern "C" const char* sparse_mla_error_name(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

// Look-ups, and the packing of weights.
#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

// Grid: rows of y.
__global__ void embed_kernel(Embed p) {
  const int64_t t = blockIdx.x, token = p.tokens[t];
  for (int64_t k = threadIdx.x; k < p.table.K; k += kThreads) {
    const float value = weight_of(p.table, token, k);
    for (int64_t s = 0; s < p.S; ++s) p.y[(t * p.S + s) * p.table.K + k] = value;
  }
}

// Grid: rows of y times heads.
__global__ void table_rows_kernel(TableRows p) {
  const int64_t row = p.rows[blockIdx.x];
  const Matrix shard = p.shards[row / p.shard_rows];
  for (int64_t k = threadIdx.x; k < p.width; k += kThreads)
    p.y[blockIdx.x * p.width + k] = weight_of(shard, row % p.shard_rows, k);
}

__global__ void gather_rows_kernel(GatherRows p) {
  const float* from = p.x + p.rows[blockIdx.x] * p.width;
  for (int64_t k = threadIdx.x; k < p.width; k += kThreads) p.y[blockIdx.x * p.width + k] = from[k];
}

__global__ void gather_columns_kernel(GatherColumns p) {
  const int64_t t = blockIdx.x;
  for (int64_t n = threadIdx.x; n < p.N; n += kThreads) p.y[t * p.N + n] = p.x[t * p.x_stride + p.columns[n]];
}

constexpr int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t copied_bytes(const Matrix& rows) { return padded(rows.data_bytes()) + padded(rows.scale_bytes()); }

const void* copy(const void* from, std::byte* to, int64_t bytes) {
  if (bytes == 0) return nullptr;
  WP_ASSERT(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault) == cudaSuccess);
  return to;
}

Matrix copy_rows(const Matrix& rows, std::byte* destination) {
  Matrix packed = rows;
  packed.data = copy(rows.data, destination, rows.data_bytes());
  packed.scale = copy(rows.scale, destination + padded(rows.data_bytes()), rows.scale_bytes());
  return packed;
}

}  // namespace

void embed(Stream& stream, const Embed& p) {
  embed_kernel<<<blocks_for(p.T, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void table_rows(Stream& stream, const TableRows& p) {
  table_rows_kernel<<<blocks_for(p.T * p.heads, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void gather_rows(Stream& stream, const GatherRows& p) {
  gather_rows_kernel<<<blocks_for(p.R, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void gather_columns(Stream& stream, const GatherColumns& p) {
  gather_columns_kernel<<<blocks_for(p.T, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

Packing packing() { return {.size_bytes = copied_bytes, .pack = copy_rows}; }

}  // namespace wp::kernels::gpu

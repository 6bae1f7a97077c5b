// Arguments of the kernels that multiply by weights or look rows up. Contracts and tolerances: ops/linear.h.
#pragma once

#include <cstdint>

#include "core/matrix.h"

namespace wp::kernels {

// y[t, n] = sum over k of x[row(t), k] W[n, k], row(t) = rows ? rows[t] : t. x and y do not overlap.
struct Matmul {
  int64_t T = 0;
  Matrix W;  // [N, K] in the backend's packing.
  const float* x = nullptr;
  int64_t x_stride = 0;           // Floats between rows.
  const int32_t* rows = nullptr;  // [T] or null.
  float* y = nullptr;
  int64_t y_stride = 0;
};

// Products of the same rows, with at most kProductsMax weights; each as Matmul.
constexpr int kProductsMax = 4;
struct MatmulGroup {
  struct Product {
    Matrix W;
    float* y = nullptr;
    int64_t y_stride = 0;
  };
  int64_t T = 0;
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* rows = nullptr;
  int count = 0;
  Product products[kProductsMax];

  constexpr Matmul at(int i) const {
    const Product& product = products[i];
    return {.T = T,
            .W = product.W,
            .x = x,
            .x_stride = x_stride,
            .rows = rows,
            .y = product.y,
            .y_stride = product.y_stride};
  }
};

// y[t, s * M + m] = table[tokens[t], m] for each of S copies. `table` in layout rows.
struct Embed {
  int64_t T = 0, S = 0;
  Matrix table;  // [V, M]
  const int32_t* tokens = nullptr;
  float* y = nullptr;  // [T, S * M]
};

// y[t, h * width + i] = shard[rows[t, h] / shard_rows][rows[t, h] % shard_rows, i]. Shards in layout rows.
struct TableRows {
  int64_t T = 0, heads = 0, width = 0;
  const Matrix* shards = nullptr;
  int64_t shards_count = 0, shard_rows = 0;
  const int64_t* rows = nullptr;  // [T, heads]
  float* y = nullptr;             // [T, heads * width]
};

// y[r, :] = x[rows[r], :]
struct GatherRows {
  int64_t R = 0, width = 0;
  const int32_t* rows = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
};

// y[t, i] = x[t, columns[i]]
struct GatherColumns {
  int64_t T = 0, N = 0;
  const int32_t* columns = nullptr;  // [N]
  const float* x = nullptr;
  int64_t x_stride = 0;
  float* y = nullptr;  // [T, N]
};

// A backend's packing of weights, called at load. `size_bytes` of 0: used where it lies, in layout rows. What `rows`
// points to lies in host memory, or in the device's own (synthetic weights are made there).
struct Packing {
  int64_t (*size_bytes)(const Matrix& rows) = nullptr;                   // A multiple of 64.
  Matrix (*pack)(const Matrix& rows, std::byte* destination) = nullptr;  // destination aligned to 64 bytes.
};

}  // namespace wp::kernels

// Multiplying by weights and looking rows up. Engine thread, or the loading thread. Allocates nothing.
// Tolerance against ref: 1e-5 * (1 + sum over k of |x W|) for matmul, exact for look-ups.
// Bits: a row of y depends on its row of x and on W alone; one order of summing for each shape of W.
#pragma once

#include <initializer_list>
#include <span>

#include "core/matrix.h"
#include "core/tensor.h"
#include "device/device.h"

namespace wp::ops {

// y [T, N] = x W^T for x [T, K]; with `rows` [T] i32 row t of y is made from row rows[t] of x.
void matmul(Stream& stream, const Tensor& x, const Matrix& W, const Tensor& y, const Tensor& rows = {});

// The same for up to kernels::kProductsMax weights at once: a launch of its own for each costs a GPU more than the
// smaller of them.
struct Product {
  const Matrix& W;
  const Tensor& y;
};
void matmul_group(Stream& stream, const Tensor& x, std::span<const Product> products);
inline void matmul_group(Stream& stream, const Tensor& x, std::initializer_list<Product> products) {
  matmul_group(stream, x, std::span(products.begin(), products.size()));
}

// y [T, S * M]: row tokens[t] of table [V, M], S times side by side.
void embed(Stream& stream, const Matrix& table, const Tensor& tokens, const Tensor& y);

// y [T, heads * width] from rows [T, heads] i64 of a table in equal shards of shard_rows rows.
void table_rows(Stream& stream, std::span<const Matrix> shards, int64_t shard_rows, const Tensor& rows,
                const Tensor& y);

// y [R, W]: the rows [R] i32 of x [T, W].
void gather_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& y);

// y [T, N]: the columns [N] i32 of x [T, K].
void gather_columns(Stream& stream, const Tensor& x, const Tensor& columns, const Tensor& y);

}  // namespace wp::ops

#include "ops/linear.h"

#include "ops/tables.h"

namespace wp::ops {

void matmul(Stream& stream, const Tensor& x, const Matrix& W, const Tensor& y, const Tensor& rows) {
  Dim T{"T"}, rows_of_x{"rows of x"};
  WP_ASSERT(W);
  expect("matmul y", y, DType::f32, {T, W.N});
  expect("matmul x", x, DType::f32, {rows_of_x, W.K});
  if (rows) expect("matmul rows", rows, DType::i32, {T});
  WP_ASSERT(rows || rows_of_x == T);
  if (T == 0) return;
  matmul_kernels.run(stream, {.T = T,
                              .W = W,
                              .x = x.f32(),
                              .x_stride = x.row_stride,
                              .rows = rows ? rows.i32() : nullptr,
                              .y = y.f32(),
                              .y_stride = y.row_stride});
}

void matmul_group(Stream& stream, const Tensor& x, std::span<const Product> products) {
  WP_ASSERT(!products.empty() && products.size() <= kernels::kProductsMax);
  const int64_t T = x.dim(0), K = x.dim(1);
  kernels::MatmulGroup group{
      .T = T, .x = x.f32(), .x_stride = x.row_stride, .count = static_cast<int>(products.size())};
  for (size_t i = 0; i < products.size(); ++i) {
    const auto& [W, y] = products[i];
    WP_ASSERT(W && W.K == K);
    expect("matmul_group y", y, DType::f32, {T, W.N});
    group.products[i] = {.W = W, .y = y.f32(), .y_stride = y.row_stride};
  }
  if (T > 0) matmul_group_kernels.run(stream, group);
}

void embed(Stream& stream, const Matrix& table, const Tensor& tokens, const Tensor& y) {
  Dim T{"T"}, width{"S * M"};
  expect("embed tokens", tokens, DType::i32, {T});
  expect("embed y", y, DType::f32, {T, width});
  WP_ASSERT(table.layout == WeightLayout::rows && y.dense() && width % table.K == 0);
  if (T == 0) return;
  embed_kernels.run(stream, {.T = T, .S = width / table.K, .table = table, .tokens = tokens.i32(), .y = y.f32()});
}

void table_rows(Stream& stream, std::span<const Matrix> shards, int64_t shard_rows, const Tensor& rows,
                const Tensor& y) {
  Dim T{"T"}, heads{"heads"}, width{"heads * width"};
  expect("table_rows rows", rows, DType::i64, {T, heads});
  expect("table_rows y", y, DType::f32, {T, width});
  WP_ASSERT(!shards.empty() && rows.dense() && y.dense());
  for (const Matrix& shard : shards)
    WP_ASSERT(shard.layout == WeightLayout::rows && shard.N == shard_rows && shard.K * heads == width);
  if (T == 0) return;
  table_rows_kernels.run(stream, {.T = T,
                                  .heads = heads,
                                  .width = width / heads,
                                  .shards = shards.data(),
                                  .shards_count = static_cast<int64_t>(shards.size()),
                                  .shard_rows = shard_rows,
                                  .rows = rows.i64(),
                                  .y = y.f32()});
}

void gather_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& y) {
  Dim T{"T"}, R{"R"}, width{"W"};
  expect("gather_rows x", x, DType::f32, {T, width});
  expect("gather_rows rows", rows, DType::i32, {R});
  expect("gather_rows y", y, DType::f32, {R, width});
  WP_ASSERT(x.dense() && y.dense());
  if (R == 0) return;
  gather_rows_kernels.run(stream, {.R = R, .width = width, .rows = rows.i32(), .x = x.f32(), .y = y.f32()});
}

void gather_columns(Stream& stream, const Tensor& x, const Tensor& columns, const Tensor& y) {
  Dim T{"T"}, K{"K"}, N{"N"};
  expect("gather_columns x", x, DType::f32, {T, K});
  expect("gather_columns columns", columns, DType::i32, {N});
  expect("gather_columns y", y, DType::f32, {T, N});
  WP_ASSERT(y.dense());
  if (T == 0) return;
  gather_columns_kernels.run(
      stream, {.T = T, .N = N, .columns = columns.i32(), .x = x.f32(), .x_stride = x.row_stride, .y = y.f32()});
}

}  // namespace wp::ops

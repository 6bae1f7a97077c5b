#include <algorithm>

#include "core/assert.h"
#include "kernels/ref/decode.h"
#include "kernels/ref/ref.h"

namespace wp::kernels::ref {
namespace {

// Output n of all rows.
void matmul_column(const Matmul& p, int64_t n) {
  const float* rows[kTileRows];
  double sums[kTileRows];
  for (int64_t t0 = 0; t0 < p.T; t0 += kTileRows) {
    const int64_t count = std::min(kTileRows, p.T - t0);
    for (int64_t t = 0; t < count; ++t) rows[t] = p.x + (p.rows ? p.rows[t0 + t] : t0 + t) * p.x_stride;
    dots(p.W, n, rows, count, sums);
    for (int64_t t = 0; t < count; ++t) p.y[(t0 + t) * p.y_stride + n] = static_cast<float>(sums[t]);
  }
}

void copy_row(const Matrix& table, int64_t row, float* y) {
  double piece[kTileK];
  for (int64_t k = 0; k < table.K; k += kTileK) {
    const int64_t count = std::min(kTileK, table.K - k);
    decode_row(table, row, k, count, piece);
    for (int64_t i = 0; i < count; ++i) y[k + i] = static_cast<float>(piece[i]);
  }
}

}  // namespace

void matmul(Stream& stream, const Matmul& p) {
  stream.threads().run(p.W.N, [&](int64_t n, int) { matmul_column(p, n); });
}

void matmul_group(Stream& stream, const MatmulGroup& p) {
  for (int i = 0; i < p.count; ++i) matmul(stream, p.at(i));
}

void embed(Stream& stream, const Embed& p) {
  const int64_t M = p.table.K;
  stream.threads().run(p.T, [&](int64_t t, int) {
    const int64_t token = p.tokens[t];
    WP_ASSERT(token >= 0 && token < p.table.N);
    float* y = p.y + t * p.S * M;
    copy_row(p.table, token, y);
    for (int64_t s = 1; s < p.S; ++s) std::copy_n(y, M, y + s * M);
  });
}

void table_rows(Stream& stream, const TableRows& p) {
  stream.threads().run(p.T, [&](int64_t t, int) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t row = p.rows[t * p.heads + h];
      WP_ASSERT(row >= 0 && row < p.shards_count * p.shard_rows);
      const Matrix& shard = p.shards[row / p.shard_rows];
      copy_row(shard, row % p.shard_rows, p.y + (t * p.heads + h) * p.width);
    }
  });
}

void gather_rows(Stream&, const GatherRows& p) {
  for (int64_t r = 0; r < p.R; ++r) std::copy_n(p.x + p.rows[r] * p.width, p.width, p.y + r * p.width);
}

void gather_columns(Stream& stream, const GatherColumns& p) {
  stream.threads().run(p.T, [&](int64_t t, int) {
    for (int64_t n = 0; n < p.N; ++n) p.y[t * p.N + n] = p.x[t * p.x_stride + p.columns[n]];
  });
}

Packing packing() {
  return {.size_bytes = [](const Matrix&) -> int64_t { return 0; },
          .pack = [](const Matrix& rows, std::byte*) { return rows; }};
}

}  // namespace wp::kernels::ref

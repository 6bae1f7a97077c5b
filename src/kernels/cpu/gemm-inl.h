// Products with packed weights, y = x W^T, for one thread. Each output is one chain of fused multiply-adds over
// ascending k, in every path and tile size, so a row's bits depend on nothing but the row. Two paths:
//   few rows    weights are decoded in registers and used at once; bound by reading them
//   many rows   a panel pair of up to kBlockK k is decoded to a float scratch in L1 and used by all rows, in tiles of
//               kTileRows x kTilePanels accumulators; sums are carried through y from one block of k to the next
// Any thread.

#if defined(WP_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WP_KERNELS_CPU_GEMM_INL_H_
#undef WP_KERNELS_CPU_GEMM_INL_H_
#else
#define WP_KERNELS_CPU_GEMM_INL_H_
#endif

#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Rows of x for a product: row r at x + (rows ? rows[r] : r) * stride.
struct Rows {
  const float* x = nullptr;
  int64_t stride = 0;
  const int32_t* rows = nullptr;
  HWY_INLINE const float* operator[](int64_t r) const { return x + (rows ? rows[r] : r) * stride; }
  HWY_INLINE Rows from(int64_t begin) const {
    return rows ? Rows{x, stride, rows + begin} : Rows{x + begin * stride, stride, nullptr};
  }
};
// And of y.
struct RowsOut {
  float* y = nullptr;
  int64_t stride = 0;
  const int32_t* rows = nullptr;
  HWY_INLINE float* operator[](int64_t r) const { return y + (rows ? rows[r] : r) * stride; }
  HWY_INLINE RowsOut from(int64_t begin) const {
    return rows ? RowsOut{y, stride, rows + begin} : RowsOut{y + begin * stride, stride, nullptr};
  }
  HWY_INLINE RowsOut at(int64_t column) const { return {y + column, stride, rows}; }
};

#if HWY_TARGET == HWY_AVX3
constexpr int kTileRows = 12, kTilePanels = 2;  // 24 accumulators of 32 registers.
#else
constexpr int kTileRows = 6, kTilePanels = 1;  // AVX2: 12 of 16; NEON: 24 of 32.
#endif
constexpr int64_t kBlockK = 256;             // k of a scratch block: a panel pair is 32 KB.
constexpr int64_t kRowPitch = kBlockK + 16;  // Of x in scratch: rows start in different cache sets.
constexpr int64_t kBlockRows = 192;          // Rows that share a decoded panel: a multiple of kTileRows.
constexpr int64_t kFewRows = 4;

// Scratch of one thread for the second path.
struct GemmScratch {
  HWY_ALIGN float w[kTilePanels * (kBlockK + 8) * kLanes];
  HWY_ALIGN float x[kBlockRows * kRowPitch];
};
constexpr int64_t kPanelPitch = (kBlockK + 8) * kLanes;

// y[r, 0..15] of the panels, for kRows rows of scratch. `rows` of them are stored, `columns` of the outputs.
template <int kRows, int kPanels>
HWY_INLINE void tile(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, int64_t count, bool first, int64_t rows,
                     int64_t columns, const RowsOut& y) {
  V16 sums[kRows][kPanels];
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p)
      if (r < rows && p * kLanes < columns) hwy::Prefetch(y[r] + p * kLanes);  // Written when the sums are done.
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p)
      sums[r][p] = first || r >= rows ? zero() : load_some(y[r] + p * kLanes, columns - p * kLanes);
  for (int64_t k = 0; k < count; ++k) {
    V16 weights[kPanels];
    for (int p = 0; p < kPanels; ++p) weights[p] = load(w + p * kPanelPitch + k * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const V16 value = set(x[r * kRowPitch + k]);
      for (int p = 0; p < kPanels; ++p) sums[r][p] = fma(value, weights[p], sums[r][p]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPanels; ++p)
      if (r < rows) store_some(sums[r][p], y[r] + p * kLanes, columns - p * kLanes);
}

// Tiles over all rows of scratch; the last one has the least even number of rows that suffices.
template <int kRows, int kPanels>
HWY_INLINE void last_tile(const float* x, const float* w, int64_t count, bool first, int64_t rows, int64_t columns,
                          const RowsOut& y) {
  if constexpr (kRows > 2) {
    if (rows <= kRows - 2) return last_tile<kRows - 2, kPanels>(x, w, count, first, rows, columns, y);
  }
  tile<kRows, kPanels>(x, w, count, first, rows, columns, y);
}
template <int kPanels>
HWY_NOINLINE void tiles(const float* x, const float* w, int64_t count, bool first, int64_t rows, int64_t columns,
                        const RowsOut& y) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows)
    tile<kTileRows, kPanels>(x + r * kRowPitch, w, count, first, kTileRows, columns, y.from(r));
  if (r < rows) last_tile<kTileRows, kPanels>(x + r * kRowPitch, w, count, first, rows - r, columns, y.from(r));
}

// Rows of x in scratch; those that only fill a tile up are 0.
HWY_INLINE void copy_rows(const Rows& x, int64_t rows, int64_t k_begin, int64_t count, float* out) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(out + r * kRowPitch, x[r] + k_begin, static_cast<size_t>(count) * sizeof(float));
  if (rows % 2 != 0) std::memset(out + rows * kRowPitch, 0, static_cast<size_t>(count) * sizeof(float));
}

// y[r, n - 16 * panel_begin] = sum over k of x[r, k] W[n, k] for outputs n of the panels; rows <= kBlockRows.
inline HWY_NOINLINE void multiply_many(const Rows& x, int64_t rows, const Matrix& W, int64_t panel_begin,
                                       int64_t panel_end, const RowsOut& y, GemmScratch& scratch) {
  for (int64_t k = 0; k < W.K; k += kBlockK) {
    const int64_t count = std::min(kBlockK, W.K - k);
    copy_rows(x, rows, k, count, scratch.x);
    for (int64_t panel = panel_begin; panel < panel_end; panel += kTilePanels) {
      const int64_t panels = std::min<int64_t>(kTilePanels, panel_end - panel);
      for (int64_t p = 0; p < panels; ++p)
        by_format<Unpack>(W.format, W, panel + p, k, count, scratch.w + p * kPanelPitch);
      const int64_t columns = std::min(panels * kLanes, W.N - panel * kLanes);
      const RowsOut out = y.at((panel - panel_begin) * kLanes);
      if (panels == kTilePanels) tiles<kTilePanels>(scratch.x, scratch.w, count, k == 0, rows, columns, out);
      else tiles<1>(scratch.x, scratch.w, count, k == 0, rows, columns, out);
    }
  }
}

// The same for kRows rows and kPanels panels, from registers: kRows * kPanels independent chains.
template <WeightFormat kFormat, int kRows, int kPanels>
HWY_NOINLINE void multiply_registers(const float* const (&x)[kRows], const Matrix& W, int64_t panel, const RowsOut& y) {
  constexpr int kPerWord = Panel<kFormat>::kPerWord;
  V16 sums[kRows][kPanels];
  Panel<kFormat> readers[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    readers[p].open(W, panel + p);
    for (int r = 0; r < kRows; ++r) sums[r][p] = zero();
  }
  for (int64_t k = 0; k < W.K; k += kLanes) {
    for (int p = 0; p < kPanels; ++p) readers[p].group(k);
    const int64_t end = std::min(W.K, k + kLanes);
    for (int64_t i = k; i < end; i += kPerWord) {
      for (int p = 0; p < kPanels; ++p) {
        V16 w[kPerWord];
        readers[p].word(i / kPerWord, w);
        for (int j = 0; j < kPerWord; ++j)
          if (i + j < end)
            for (int r = 0; r < kRows; ++r) sums[r][p] = fma(set(x[r][i + j]), w[j], sums[r][p]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p)
    for (int r = 0; r < kRows; ++r) store_some(sums[r][p], y[r] + p * kLanes, W.N - (panel + p) * kLanes);
}

// For up to kFewRows rows. `y` points at output 16 * panel_begin.
template <WeightFormat kFormat>
struct MultiplyFew {
#if HWY_TARGET == HWY_AVX3
  static constexpr int kChains = 8;
#else
  static constexpr int kChains = 4;
#endif
  template <int kRows>
  static HWY_INLINE void rows(const Rows& x, const Matrix& W, int64_t panel_begin, int64_t panel_end,
                              const RowsOut& y) {
    constexpr int kPanels = kChains / kRows > 1 ? kChains / kRows : 1;
    const float* pointers[kRows];
    for (int r = 0; r < kRows; ++r) pointers[r] = x[r];
    int64_t panel = panel_begin;
    for (; panel + kPanels <= panel_end; panel += kPanels)
      multiply_registers<kFormat, kRows, kPanels>(pointers, W, panel, y.at((panel - panel_begin) * kLanes));
    if constexpr (kPanels > 1)
      for (; panel < panel_end; ++panel)
        multiply_registers<kFormat, kRows, 1>(pointers, W, panel, y.at((panel - panel_begin) * kLanes));
  }
  static HWY_NOINLINE void run(const Rows& x, int64_t count, const Matrix& W, int64_t panel_begin, int64_t panel_end,
                               const RowsOut& y) {
    switch (count) {
      case 1: return rows<1>(x, W, panel_begin, panel_end, y);
      case 2: return rows<2>(x, W, panel_begin, panel_end, y);
      case 3: return rows<3>(x, W, panel_begin, panel_end, y);
      default: return rows<4>(x, W, panel_begin, panel_end, y);
    }
  }
};

// Either path; rows <= kBlockRows.
HWY_INLINE void multiply(const Rows& x, int64_t rows, const Matrix& W, int64_t panel_begin, int64_t panel_end,
                         const RowsOut& y, GemmScratch& scratch) {
  if (rows <= 0) return;
  if (rows <= kFewRows) by_format<MultiplyFew>(W.format, x, rows, W, panel_begin, panel_end, y);
  else multiply_many(x, rows, W, panel_begin, panel_end, y, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // WP_KERNELS_CPU_GEMM_INL_H_

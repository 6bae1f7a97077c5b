// QSA: which blocks of tokens a row attends to. Scores of all blocks go to the workspace, a thread a block; then one
// block of threads for a row finds the score of the budget's last block and lists what lies above it, and as many of
// those equal to it as fit, lower blocks first. Bound by the bytes of the index keys.
#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

constexpr int kScoreThreads = 64, kWarps = kThreads / 32;
constexpr uint32_t kAll = 0xFFFFFFFF;

// Rows [first, last) of the pass; scores of row t at (t - first) * stride.
struct RowsOfScores {
  SelectBlocks p;
  int64_t first, last, stride;
  uint32_t* scores;
};

// Grid: rows, parts of their blocks. The bits of a score order as the score does: none is negative, and -0 was made 0.
// Each head's sum is one chain over ascending d.
template <int kHeads>
__global__ void __launch_bounds__(kScoreThreads) score_kernel(RowsOfScores w) {
  extern __shared__ float queries[];
  const SelectBlocks& p = w.p;
  const int64_t t = w.first + blockIdx.x, blocks = (p.batch.row_position[t] + 1) / kBlockTokens;
  if (blocks <= p.budget || int64_t{blockIdx.y} * kScoreThreads >= blocks) return;
  const auto DI = static_cast<int>(p.DI), heads = static_cast<int>(p.HI);
  for (int i = threadIdx.x; i < heads * DI; i += kScoreThreads) queries[i] = p.queries[t * heads * DI + i];
  __syncthreads();
  const int32_t* pages = p.batch.segments[p.batch.row_segment[t]].pages;
  const float root = sqrtf(static_cast<float>(DI));
  const int64_t step = int64_t{gridDim.y} * kScoreThreads;
  for (int64_t b = int64_t{blockIdx.y} * kScoreThreads + threadIdx.x; b < blocks; b += step) {
    const std::byte* page = p.batch.pages + pages[b / kPageBlocks] * p.batch.page_bytes + p.pages.page_offset;
    const float* key = reinterpret_cast<const float*>(page) + p.pages.layout.index_at(b % kPageBlocks, 0);
    float dots[kHeads] = {};
#pragma unroll 8
    for (int d = 0; d < DI; ++d) {
      const float k = __ldg(key + d * kPageBlocks);
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
        if (h < heads) dots[h] = fmaf(queries[h * DI + d], k, dots[h]);
    }
    float score = 0;
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < heads) score += dots[h] > 0 ? dots[h] : 0.0f;
    w.scores[(t - w.first) * w.stride + b] = __float_as_uint(score / root);
  }
}

// The sum of the values of all threads before this one; `all`: of all.
__device__ inline int32_t sum_before(int32_t value, int32_t (&shared)[kWarps], int32_t& all) {
  int32_t sum = value;
#pragma unroll
  for (int far = 1; far < 32; far *= 2) {
    const int32_t before = __shfl_up_sync(kAll, sum, far);
    if (threadIdx.x % 32 >= far) sum += before;
  }
  if (threadIdx.x % 32 == 31) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  int32_t before = 0;
  all = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    before += i < static_cast<int>(threadIdx.x / 32) ? shared[i] : 0;
    all += shared[i];
  }
  __syncthreads();
  return before + sum - value;
}

struct Cut {
  uint32_t score;  // Of the budget's last block.
  int32_t left;    // How many blocks of just that score fit.
};

// Eight bits at a time, from the top.
__device__ inline Cut find_cut(const uint32_t* scores, int64_t blocks, int64_t budget) {
  __shared__ uint32_t counts[256];
  __shared__ int32_t shared[kWarps];
  __shared__ Cut found;
  Cut cut{0, static_cast<int32_t>(budget)};
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t fixed = shift == 24 ? 0 : ~0u << (shift + 8);
    for (int64_t b = threadIdx.x; b < blocks; b += kThreads)
      if ((scores[b] & fixed) == cut.score) atomicAdd(&counts[scores[b] >> shift & 255], 1u);
    __syncthreads();
    const auto digit = static_cast<uint32_t>(255 - threadIdx.x);  // Thread 0 has the highest.
    const auto count = static_cast<int32_t>(counts[digit]);
    int32_t all;
    const int32_t above = sum_before(count, shared, all);
    if (above < cut.left && above + count >= cut.left) found = {cut.score | digit << shift, cut.left - above};
    __syncthreads();
    cut = found;
    __syncthreads();
  }
  return cut;
}

// Thread i looks at the i-th run of blocks, so that what it writes follows what the threads before it write.
__device__ inline void list_blocks(const uint32_t* scores, int64_t blocks, Cut cut, int32_t* selected) {
  __shared__ int32_t shared[kWarps];
  const int64_t run = (blocks + kThreads - 1) / kThreads, begin = threadIdx.x * run;
  const int64_t end = begin + run < blocks ? begin + run : blocks;
  int32_t above = 0, equal = 0, all;
  for (int64_t b = begin; b < end; ++b) {
    above += scores[b] > cut.score;
    equal += scores[b] == cut.score;
  }
  int32_t equal_before = sum_before(equal, shared, all);
  int32_t at = sum_before(above, shared, all) + (equal_before < cut.left ? equal_before : cut.left);
  for (int64_t b = begin; b < end; ++b) {
    const bool tie = scores[b] == cut.score;
    if (scores[b] > cut.score || (tie && equal_before < cut.left)) selected[at++] = static_cast<int32_t>(b);
    equal_before += tie;
  }
}

// Grid: rows.
__global__ void __launch_bounds__(kThreads) list_kernel(RowsOfScores w) {
  const SelectBlocks& p = w.p;
  const int64_t t = w.first + blockIdx.x, blocks = (p.batch.row_position[t] + 1) / kBlockTokens;
  if (blocks <= p.budget) return;
  const uint32_t* scores = w.scores + blockIdx.x * w.stride;
  list_blocks(scores, blocks, find_cut(scores, blocks, p.budget), p.selected + t * p.budget);
}

template <int kHeads>
void launch(Stream& stream, const RowsOfScores& w) {
  const auto rows = static_cast<unsigned>(w.last - w.first);
  // A long context is cut into many parts where few rows would leave the device idle.
  const int64_t parts = (w.stride + kScoreThreads - 1) / kScoreThreads, most = rows <= 64 ? 512 : 16;
  const dim3 grid(rows, static_cast<unsigned>(parts < most ? parts : most));
  const auto bytes = static_cast<size_t>(w.p.HI * w.p.DI * 4);
  WP_ASSERT(bytes <= 48 << 10);
  score_kernel<kHeads><<<grid, kScoreThreads, bytes, on(stream)>>>(w);
  list_kernel<<<rows, kThreads, 0, on(stream)>>>(w);
}

}  // namespace

void select_blocks(Stream& stream, const SelectBlocks& p) {
  // A block's part of the workspace has room for the scores of the longest sequence; together for those of many rows.
  const int64_t stride = p.workspace.context_max / kBlockTokens + 1,
                bytes = p.workspace.bytes_per_thread * p.workspace.threads;
  const int64_t rows = bytes / (stride * 4);
  WP_ASSERT(rows > 0 && p.HI <= 16);
  for (int64_t first = 0; first < p.batch.rows; first += rows) {
    const int64_t last = first + rows < p.batch.rows ? first + rows : p.batch.rows;
    const RowsOfScores w{p, first, last, stride, reinterpret_cast<uint32_t*>(p.workspace.data)};
    if (p.HI <= 4) launch<4>(stream, w);
    else launch<16>(stream, w);
  }
  check_launch();
}

}  // namespace wp::kernels::gpu

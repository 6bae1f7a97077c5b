#include <span>
#include <vector>

#include "core/hash.h"
#include "core/rng.h"
#include "model/model.h"
#include "ops/attention.h"
#include "ops/gdn.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/ngram.h"
#include "ops/packing.h"
#include "ops/residual.h"
#include "ops/workspace.h"

namespace wp {
namespace {

// Raised with every change of prefill arithmetic: states and pages written under another id are misses.
constexpr uint64_t kPrefillNumerics = 1;

#if defined(__x86_64__)
constexpr const char* kArchitecture = "x86-64";
#elif defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#else
constexpr const char* kArchitecture = "other";
#endif

// Runs canonical kernels on fixed inputs and hashes what they return. One sequence of T rows, odd sizes.
class Probe {
 public:
  explicit Probe(Stream& stream) : stream_(stream), pages_(make(2 * kPages.layer_bytes())), slot_(make(kSlotBytes)) {
    const int64_t bytes = ops::workspace_bytes_per_thread(kT), parts = stream.device().workspaces();
    workspace_ = {.data = make(bytes * parts).data(), .bytes_per_thread = bytes, .threads = parts, .context_max = kT};
    const Tensor row_segment = blank(DType::i32, {kT}), row_position = blank(DType::i32, {kT});
    for (int32_t t = 0; t < kT; ++t) row_position.i32()[t] = t;
    const Tensor page_ids = blank(DType::i32, {2});
    page_ids.i32()[1] = 1;
    auto* segment = reinterpret_cast<kernels::SegmentView*>(make(sizeof(kernels::SegmentView)).data());
    *segment = {.rows = kT, .state_out = slot_.data(), .pages = page_ids.i32()};
    batch_ = {.rows = kT,
              .segments_count = 1,
              .segments = segment,
              .row_segment = row_segment.i32(),
              .row_position = row_position.i32(),
              .pages = pages_.data(),
              .page_bytes = kPages.layer_bytes()};
  }

  uint64_t run() {
    multiply();
    residual();
    gated_delta_rule();
    attend();
    experts();
    embedding();
    return hash_;
  }

 private:
  static constexpr int32_t kT = 67;
  static constexpr int64_t kSlotBytes = 1 << 16;
  static constexpr kernels::PageLayout kPages{.HK = 1, .D = 32, .DI = 16};

  Buffer& make(int64_t size_bytes) {
    auto made = Buffer::make(stream_.device(), size_bytes, "numerics id");
    WP_ASSERT(made.ok());  // Some kilobytes, while a model is loaded.
    buffers_.push_back(std::make_unique<Buffer>(std::move(*made)));
    return *buffers_.back();
  }
  Tensor blank(DType dtype, const Shape& shape) { return make(shape.count() * size_bytes(dtype)).view(dtype, shape); }
  Tensor blank(const Shape& shape) { return blank(DType::f32, shape); }
  // Drawn from the salt, not from a running counter: a compiler may evaluate arguments in any order.
  Tensor filled(const Shape& shape, uint64_t salt, double scale = 1) {
    Tensor tensor = blank(shape);
    for (int64_t i = 0; i < tensor.count(); ++i)
      tensor.f32()[i] = static_cast<float>((2 * uniform(salt, static_cast<uint64_t>(i)) - 1) * scale);
    return tensor;
  }
  Tensor filled_bytes(const Shape& shape, uint64_t salt, uint8_t mask) {
    Tensor tensor = blank(DType::u8, shape);
    for (int64_t i = 0; i < tensor.count(); ++i)
      tensor.data[i] =
          static_cast<std::byte>(static_cast<uint8_t>(uniform(salt, static_cast<uint64_t>(i)) * 256) & mask);
    return tensor;
  }
  void add(const Tensor& tensor) {
    stream_.synchronize();
    hash_ = hash_bytes(tensor.data, static_cast<size_t>(tensor.size_bytes()), hash_);
  }

  Matrix packed(const Matrix& rows) {
    auto arena = ops::WeightArena::make(stream_.device(), ops::packed_bytes(stream_.kind(), rows));
    WP_ASSERT(arena.ok());
    arenas_.push_back(std::make_unique<ops::WeightArena>(std::move(*arena)));
    return arenas_.back()->pack(rows);
  }
  Matrix matrix(int64_t N, int64_t K) {
    return packed({.format = WeightFormat::f32, .N = N, .K = K, .data = filled({N, K}, 1, 0.3).data});
  }
  // Codes below 0x78 are finite; scales are small.
  Matrix quantised(WeightFormat format, int64_t N, int64_t K) {
    Matrix rows{.format = format, .N = N, .K = K, .scale_2 = 0.03f};
    switch (format) {
      case WeightFormat::f32: return matrix(N, K);
      case WeightFormat::f16:
      case WeightFormat::bf16: rows.data = filled_bytes({N, K * 2}, 2, 0xBB).data; break;
      case WeightFormat::nvfp4:
        rows.data = filled_bytes({N, K / 2}, 3, 0xFF).data;
        rows.scale = filled_bytes({N, K / 16}, 4, 0x37).data;
        break;
      default: rows.data = filled_bytes({N, K}, 5, 0xB7).data; rows.scale = filled({N, (K + 127) / 128}, 6, 0.1).data;
    }
    return packed(rows);
  }

  void multiply() {
    const Tensor x = filled({kT, 48}, 7), y = blank({kT, 21});
    for (WeightFormat format : {WeightFormat::f32, WeightFormat::f16, WeightFormat::bf16, WeightFormat::fp8_tensor,
                                WeightFormat::fp8_row, WeightFormat::fp8_block, WeightFormat::nvfp4}) {
      ops::matmul(stream_, x, quantised(format, 21, 48), y);
      add(y);
    }
    const Tensor gate = filled({kT, 21}, 8), z = blank({kT, 48});
    ops::silu_mul(stream_, gate, y);
    add(gate);
    ops::rms_norm(stream_, {.weight = filled({16}, 9)}, 3, x, z);
    add(z);
  }

  void residual() {
    const ops::GatedResidual mixer{
        .norm = filled({4 * 24}, 10), .down = matrix(9, 96), .up = matrix(96, 9), .inject = matrix(4, 96)};
    const Tensor H = filled({kT, 96}, 11), x = blank({kT, 24}), weights = blank({kT, 4});
    ops::gated_residual(
        stream_, mixer, H, x, weights,
        {.normed = blank({kT, 96}), .low = blank({kT, 13}), .gates = blank({kT, 96}), .workspace = workspace_});
    ops::inject(stream_, H, x, weights);
    add(H);
  }

  void gated_delta_rule() {
    const ops::GdnHeads heads{.HK = 2, .HV = 4, .DK = 16, .DV = 24};
    const Tensor u = filled({kT, heads.channels()}, 12), qkv = blank({kT, heads.channels()}), o = blank({kT, 96});
    ops::conv_silu(stream_, batch_, u, filled({4, heads.channels()}, 13), 1, 0, qkv);
    add(qkv);
    ops::gdn(stream_, batch_, heads, qkv, filled({kT, 4}, 14), filled({kT, 4}, 15), filled({4}, 16), filled({4}, 17),
             4096, o, u, workspace_);
    add(o);
    for (kernels::Gate gate : {kernels::Gate::sigmoid, kernels::Gate::silu}) {
      ops::gated_norm(stream_, o, filled({kT, 96}, 18), filled({24}, 19), 1e-6f, gate, o);
      add(o);
    }
    hash_ = hash_bytes(slot_.data(), kSlotBytes, hash_);
  }

  void attend() {
    const ops::AttentionHeads heads{.HQ = 3, .HK = 1, .D = 32};
    const Tensor cosine = blank({kT, 4}), sine = blank({kT, 4});
    ops::fill_rope(cosine, sine, 1e4);
    const kernels::Rope rope{.cosine = cosine.f32(), .sine = sine.f32(), .rotary = 8};
    const kernels::LayerPages pages{.layout = kPages};
    const Tensor q_gate = filled({kT, 192}, 20), q = blank({kT, 96}), o = blank({kT, 96}), queries = blank({kT, 32});
    const Tensor selected = blank(DType::i32, {kT, 5});
    ops::attention_inputs(stream_, batch_, pages, rope, heads, q_gate, filled({kT, 32}, 21), filled({kT, 32}, 22),
                          filled({32}, 23), filled({32}, 24), 1e-6f, q);
    ops::index_keys(stream_, batch_, pages, rope, filled({kT, 48}, 25), filled({16}, 26), filled({16}, 27), 1e-6f, 0,
                    queries);
    ops::select_blocks(stream_, batch_, pages, queries, selected, workspace_);
    ops::attention(stream_, batch_, pages, heads, q, q_gate, selected, o, workspace_);
    add(o);
    ops::attention(stream_, batch_, pages, heads, q, q_gate, {}, o, workspace_);
    add(o);
  }

  void experts() {
    constexpr size_t kE = 5;
    const auto matrices =
        std::span(reinterpret_cast<kernels::ExpertWeights*>(make(kE * sizeof(kernels::ExpertWeights)).data()), kE);
    for (kernels::ExpertWeights& expert : matrices)
      expert = {.gate = matrix(16, 24), .up = matrix(16, 24), .down = matrix(24, 16)};
    const ops::Routing routing{.experts = blank(DType::i32, {kT, 2}),
                               .weights = blank({kT, 2}),
                               .offsets = blank(DType::i32, {6}),
                               .order = blank(DType::i32, {kT * 2})};
    const Tensor y = blank({kT, 24});
    ops::router(stream_, filled({kT, 5}, 28), true, routing);
    ops::experts(stream_, matrices, matrices[0], filled({kT, 24}, 29), routing, filled({kT, 24}, 30),
                 filled({kT, 1}, 31), y,
                 {.hidden = blank({kT * 2, 32}), .outputs = blank({kT * 2, 24}), .workspace = workspace_});
    add(y);
  }

  void embedding() {
    const ops::NgramNorms norms{.key = filled({96}, 32), .query = filled({96}, 33), .conv = filled({96}, 34)};
    const Tensor gated = blank({kT, 96}), normed = blank({kT, 96});
    ops::ngram_gate(stream_, norms, filled({kT, 96}, 35), filled({kT, 96}, 36), filled({kT, 24}, 37), gated, normed);
    add(gated);
    add(normed);
  }

  Stream& stream_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<ops::WeightArena>> arenas_;
  Buffer &pages_, &slot_;
  kernels::Workspace workspace_;
  kernels::BatchView batch_;
  uint64_t hash_ = kPrefillNumerics;
};

}  // namespace

uint64_t canonical_outputs(Stream& stream) { return Probe(stream).run(); }

uint64_t numerics_id(Stream& stream) {
  return hash_text(cat(name(stream.kind()), " ", kArchitecture), canonical_outputs(stream));
}

}  // namespace wp

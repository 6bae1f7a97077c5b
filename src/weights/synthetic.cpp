#include "weights/synthetic.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include "core/hash.h"

namespace wp {
namespace {

constexpr int64_t kAddressBytes = int64_t{1} << 41;  // Addresses, not memory: what is never written takes none.
constexpr int64_t kAlwaysFilledBytes = 16 << 20;     // Vectors and convolutions, which the host reads everywhere.
constexpr double kFp4Rms = 2.926 * 1.073, kUniformRms = 0.57735;

bool ends_with(std::string_view name, std::initializer_list<const char*> ends) {
  for (const std::string_view end : ends)
    if (name.ends_with(end)) return true;
  return false;
}

const char* stored_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f8_e4m3: return "F8_E4M3";
    case DType::u8: return "U8";
    default: return "I64";
  }
}

// The root mean square of a weight's elements. An input of size one gives an output of size one, but: a head's logits
// of size 3 / 2 (its input has half the size), and outputs to the residual half as large, so that a hundred layers add
// up to a few.
double matrix_rms(std::string_view prefix, int64_t K) {
  const double unit = 1 / std::sqrt(static_cast<double>(K));
  if (prefix.ends_with("embed_tokens")) return 1;
  if (prefix.ends_with("lm_head")) return 3 * unit;
  if (ends_with(prefix, {".o_proj", ".out_proj", ".down_proj", ".value_proj"})) return unit / 2;
  return unit;
}

RandomFill vector_fill(std::string_view name) {
  if (name.ends_with("A_log")) return {.center = 1.4f, .spread = 1.4f};  // Decays of 1 to 16 times
  if (name.ends_with("dt_bias")) return {.center = -4, .spread = 2};     // softplus of this: states last 1 to 1,000.
  if (name.ends_with("conv1d.weight")) return {.center = 0, .spread = 0.8f};
  if (name.ends_with("linear_attn.norm.weight")) return {.center = 1, .spread = 0.2f};
  return {.center = 0, .spread = 0.2f};  // Norms: offsets from 1.
}

}  // namespace

Result<std::unique_ptr<Synthetic>> Synthetic::make(const SyntheticOptions& options) {
  std::unique_ptr<Synthetic> made(new Synthetic(options));
  void* base = ::mmap(nullptr, static_cast<size_t>(kAddressBytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return Error{ErrorCode::no_memory, cat("synthetic weights: expected ", kAddressBytes >> 40,
                                           " TiB of addresses, found fewer (vm.overcommit_memory 2 forbids it)")};
  made->base_ = static_cast<std::byte*>(base);
  return made;
}

Synthetic::~Synthetic() {
  if (base_) ::munmap(base_, static_cast<size_t>(kAddressBytes));
}

int64_t Synthetic::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? -1 : at->second;
}

const RandomFill* Synthetic::fill_at(const void* data) const {
  const auto at = fills_.find(data);
  return at == fills_.end() ? nullptr : &at->second;
}

Result<std::byte*> Synthetic::add(Impl& checkpoint, const std::string& name, DType dtype, const Shape& shape) {
  int64_t count = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] < 1 || count > kAddressBytes / shape[i])
      return Error{ErrorCode::bad_file, cat("synthetic ", name, ": expected a shape of its own, found ", shape)};
    count *= shape[i];
  }
  const int64_t bytes = count * wp::size_bytes(dtype);
  if (bytes > kAddressBytes - used_bytes_ - 64)
    return Error{ErrorCode::no_memory,
                 cat("synthetic ", name, ": expected at most ", kAddressBytes >> 40, " TiB of weights, found more")};
  std::byte* at = base_ + used_bytes_;
  used_bytes_ += (bytes + 63) / 64 * 64;
  index_[name] = static_cast<int64_t>(checkpoint.tensors.size());
  checkpoint.tensors.push_back({name, "synthetic", dtype, shape, at - base_, bytes, stored_name(dtype), true});
  checkpoint.data.push_back(at);
  checkpoint.marked.push_back(1);
  checkpoint.size_bytes += bytes;
  return at;
}

Result<void> Synthetic::declare_random(Impl& checkpoint, const std::string& name, DType dtype, const Shape& shape,
                                       RandomFill fill) {
  if (find(name) >= 0) return {};
  WP_TRY(std::byte * at, add(checkpoint, name, dtype, shape));
  fill.seed = hash_text(name, options_.seed);
  fill.size_bytes = shape.count() * wp::size_bytes(dtype);
  fills_[at] = fill;
  if (options_.fill || (fill.size_bytes <= kAlwaysFilledBytes && shape.rank() != 2))
    fill_random(fill, 0, fill.size_bytes, at);
  return {};
}

Result<void> Synthetic::declare(Impl& checkpoint, const std::string& name, DType dtype, const Shape& shape) {
  if (dtype == DType::f8_e4m3) return declare_random(checkpoint, name, dtype, shape, {.kind = RandomKind::e4m3});
  if (dtype == DType::f32)
    // The table's scale: rows of size one.
    return declare_random(checkpoint, name, dtype, shape, {.kind = RandomKind::f32, .center = 0.87f});
  return declare_random(checkpoint, name, DType::bf16, shape, vector_fill(name));
}

// As the releases do it: of a mixture the routed experts; of a dense model all large projections.
bool Synthetic::is_quantized(const std::string& prefix, int64_t K) const {
  if (!options_.nvfp4 || K % 16 != 0) return false;
  if (prefix.find(".mlp.experts.") != std::string::npos) return true;
  if (!options_.dense) return false;
  return ends_with(prefix, {".gate_proj", ".up_proj", ".down_proj", ".q_proj", ".k_proj", ".v_proj", ".o_proj",
                            ".in_proj_qkv", ".in_proj_z", ".out_proj"});
}

Result<void> Synthetic::declare_matrix(Impl& checkpoint, const std::string& prefix, int64_t N, int64_t K) {
  const double rms = matrix_rms(prefix, K);
  if (!is_quantized(prefix, K))
    return declare_random(checkpoint, prefix + ".weight", DType::bf16, {N, K},
                          {.spread = static_cast<float>(rms / kUniformRms)});
  WP_TRY(declare_random(checkpoint, prefix + ".weight", DType::u8, {N, K / 2}, {.kind = RandomKind::fp4}));
  WP_TRY(
      declare_random(checkpoint, prefix + ".weight_scale", DType::f8_e4m3, {N, K / 16}, {.kind = RandomKind::scales}));
  WP_TRY(declare_random(checkpoint, prefix + ".input_scale", DType::f32, {}, {.kind = RandomKind::f32, .center = 1}));
  return declare_random(checkpoint, prefix + ".weight_scale_2", DType::f32, {},
                        {.kind = RandomKind::f32, .center = static_cast<float>(rms / kFp4Rms)});
}

Result<void> Synthetic::declare_integers(Impl& checkpoint, const std::string& name,
                                         const std::vector<int64_t>& values) {
  if (find(name) >= 0) return {};
  WP_TRY(std::byte * at, add(checkpoint, name, DType::i64, {static_cast<int64_t>(values.size())}));
  std::memcpy(at, values.data(), values.size() * sizeof(int64_t));
  return {};
}

// ---- What a synthetic Checkpoint does of its own

Result<Checkpoint> Checkpoint::synthesize(const SyntheticOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->path = "synthetic " + options.name;
  impl->config = options.config;
  const Json& config = options.config;
  const bool nested = config.is_object() && config.contains("text_config") && config["text_config"].is_object();
  SyntheticOptions complete = options;
  complete.dense = !(nested ? config["text_config"] : config).contains("num_experts");
  WP_TRY(impl->synthetic, Synthetic::make(complete));
  impl->fingerprint = hash_text(cat(dump_json(config), options.seed, options.nvfp4));
  return Checkpoint(std::move(impl));
}

bool Checkpoint::is_synthetic() const { return impl_->synthetic != nullptr; }

const RandomFill* Checkpoint::random_fill(const void* data) const {
  return impl_->synthetic ? impl_->synthetic->fill_at(data) : nullptr;
}

Result<void> Checkpoint::provide_integers(const std::string& name, const std::vector<int64_t>& values) const {
  if (!impl_->synthetic) return {};
  return impl_->synthetic->declare_integers(*impl_, name, values);
}

}  // namespace wp

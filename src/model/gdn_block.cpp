#include "model/gdn_block.h"

#include "ops/linear.h"

namespace wp {
namespace {

// Outputs of in_proj_qkvz lie by key head: its q, its k, then v and z of its HV / HK value heads; those of in_proj_ba
// too: b, then a. q, k and v go to the order of the convolution's channels.
void map_columns(GdnBlock& block) {
  const auto& [HK, HV, DK, DV] = block.heads;
  const int64_t ratio = HV / HK, group = 2 * DK + 2 * ratio * DV;
  const auto run = [](std::vector<int32_t>& to, int64_t begin, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to.push_back(static_cast<int32_t>(begin + i));
  };
  for (int64_t h = 0; h < HK; ++h) run(block.qkv_columns, h * group, DK);
  for (int64_t h = 0; h < HK; ++h) run(block.qkv_columns, h * group + DK, DK);
  for (int64_t h = 0; h < HK; ++h) {
    run(block.qkv_columns, h * group + 2 * DK, ratio * DV);
    run(block.z_columns, h * group + 2 * DK + ratio * DV, ratio * DV);
    run(block.b_columns, h * 2 * ratio, ratio);
    run(block.a_columns, h * 2 * ratio + ratio, ratio);
  }
}

}  // namespace

double GdnBlock::multiply_adds() const {
  const auto M = static_cast<double>(out.N), value = static_cast<double>(value_width());
  const auto channels = static_cast<double>(heads.channels());
  const double projections = M * (channels + value + 2.0 * static_cast<double>(heads.HV)) + value * M;
  const double recurrence = 3.5 * static_cast<double>(heads.state_floats());  // spec 7.2: 7 operations per element.
  return projections + channels * static_cast<double>(taps) + recurrence;
}

Result<void> bind_gdn(Binder& binder, const std::string& prefix, const TrunkConfig& config, bool interleaved,
                      StateLayout& state, GdnBlock& block) {
  block.heads = {.HK = config.gdn_HK, .HV = config.gdn_HV, .DK = config.gdn_DK, .DV = config.gdn_DV};
  block.epsilon = static_cast<float>(config.epsilon);
  block.taps = config.taps;
  const int64_t M = config.M, HV = config.gdn_HV, channels = block.heads.channels(), value = block.value_width();
  if (interleaved) {
    WP_TRY(binder.matrix(prefix + "in_proj_qkvz", channels + value, M, block.qkvz));
    WP_TRY(binder.matrix(prefix + "in_proj_ba", 2 * HV, M, block.ba));
    map_columns(block);
    const auto place = [&](const std::vector<int32_t>& columns, Tensor& view) {
      binder.place(columns.data(), DType::i32, {static_cast<int64_t>(columns.size())}, view);
    };
    place(block.qkv_columns, block.qkv_at);
    place(block.z_columns, block.z_at);
    place(block.b_columns, block.b_at);
    place(block.a_columns, block.a_at);
  } else {
    WP_TRY(binder.matrix(prefix + "in_proj_qkv", channels, M, block.qkv));
    WP_TRY(binder.matrix(prefix + "in_proj_z", value, M, block.z));
    WP_TRY(binder.matrix(prefix + "in_proj_b", HV, M, block.b));
    WP_TRY(binder.matrix(prefix + "in_proj_a", HV, M, block.a));
  }
  WP_TRY(bind_conv(binder, prefix + "conv1d.weight", channels, config.taps, block.conv, block.conv_at));
  WP_TRY(binder.vector(prefix + "A_log", {HV}, block.A_log));
  WP_TRY(binder.vector(prefix + "dt_bias", {HV}, block.dt_bias));
  WP_TRY(binder.vector(prefix + "norm.weight", {config.gdn_DV}, block.norm));
  WP_TRY(binder.matrix(prefix + "out_proj", M, value, block.out));
  block.state_offset = state.add(block.heads.state_floats() * 4);
  block.conv_offset = state.add((config.taps - 1) * channels * 4);
  return {};
}

GdnScratch plan_gdn(ScratchLayout& layout, const TrunkConfig& config, bool interleaved, int64_t rows) {
  const ops::GdnHeads heads{config.gdn_HK, config.gdn_HV, config.gdn_DK, config.gdn_DV};
  const int64_t channels = heads.channels(), value = heads.HV * heads.DV;
  GdnScratch scratch{.u = layout.f32({rows, channels}),
                     .mixed = layout.f32({rows, channels}),
                     .z = layout.f32({rows, value}),
                     .o = layout.f32({rows, value}),
                     .b = layout.f32({rows, heads.HV}),
                     .a = layout.f32({rows, heads.HV})};
  if (interleaved) {
    scratch.qkvz = layout.f32({rows, channels + value});
    scratch.ba = layout.f32({rows, 2 * heads.HV});
  }
  return scratch;
}

void gdn_forward(Stream& stream, const Pass& pass, const GdnBlock& block, const Tensor& x, const GdnScratch& scratch,
                 const ops::Workspace& workspace, const Tensor& y) {
  stream.enter("gdn");
  const int64_t T = pass.rows();
  const Tensor u = scratch.u.rows(T), mixed = scratch.mixed.rows(T), z = scratch.z.rows(T), o = scratch.o.rows(T);
  const Tensor b = scratch.b.rows(T), a = scratch.a.rows(T);
  if (block.qkvz) {
    const Tensor qkvz = scratch.qkvz.rows(T), ba = scratch.ba.rows(T);
    ops::matmul_group(stream, x, {{block.qkvz, qkvz}, {block.ba, ba}});
    ops::gather_columns(stream, qkvz, block.qkv_at, u);
    ops::gather_columns(stream, qkvz, block.z_at, z);
    ops::gather_columns(stream, ba, block.b_at, b);
    ops::gather_columns(stream, ba, block.a_at, a);
  } else {
    ops::matmul_group(stream, x, {{block.qkv, u}, {block.z, z}, {block.b, b}, {block.a, a}});
  }
  ops::conv_silu(stream, pass.view(), u, block.conv_at, 1, block.conv_offset, mixed);
  // u has been read.
  ops::gdn(stream, pass.view(), block.heads, mixed, a, b, block.A_log, block.dt_bias, block.state_offset, o, u,
           workspace);
  ops::gated_norm(stream, o, z, block.norm, block.epsilon, block.gate, o);
  ops::matmul(stream, o, block.out, y);
}

}  // namespace wp

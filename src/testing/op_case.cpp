#include "testing/op_case.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "core/numbers.h"
#include "ops/workspace.h"

namespace wp::testing {

Buffer OpCase::buffer(int64_t size_bytes) {
  auto made = Buffer::make(stream_.device(), size_bytes, "test");
  WP_ASSERT(made.ok());
  return std::move(*made);
}

Tensor OpCase::take(const Shape& shape, DType dtype) {
  const int64_t bytes = (shape.count() * size_bytes(dtype) + 63) / 64 * 64;
  if (memory_ && pool_used_ + bytes <= memory_->pool.size_bytes()) {
    const Tensor tensor = memory_->pool.view(dtype, shape, pool_used_);
    pool_used_ += bytes;
    return tensor;
  }
  buffers_.push_back(buffer(shape.count() * size_bytes(dtype)));
  return buffers_.back().view(dtype, shape);
}

Tensor OpCase::blank(const Shape& shape, DType dtype) {
  const Tensor tensor = take(shape, dtype);
  if (tensor.size_bytes() > 0) std::memset(tensor.data, 0xFF, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

Tensor OpCase::filled(const Shape& shape, double scale) {
  const Tensor tensor = blank(shape);
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.f32()[i] = static_cast<float>(rng_.normal() * scale);
  return tensor;
}

Tensor OpCase::integers(const std::vector<int32_t>& values) {
  const Tensor tensor = blank({static_cast<int64_t>(values.size())}, DType::i32);
  for (size_t i = 0; i < values.size(); ++i) tensor.i32()[i] = values[i];
  return tensor;
}

Matrix OpCase::rows_matrix(WeightFormat format, int64_t N, int64_t K) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(K));
  Matrix rows{.format = format, .N = N, .K = K};
  const auto codes = [&](int64_t count, int highest, bool negative) {
    const Tensor bytes = blank({count}, DType::u8);
    for (int64_t i = 0; i < count; ++i)
      bytes.data[i] = static_cast<std::byte>(rng_.between(0, highest) | (negative && rng_.percent(50) ? 0x80 : 0));
    return bytes.data;
  };
  const auto scales = [&](int64_t count) {
    const Tensor values = blank({count});
    for (int64_t i = 0; i < count; ++i) values.f32()[i] = static_cast<float>((0.5 + rng_.real()) * scale / 16);
    return values.data;
  };
  switch (format) {
    case WeightFormat::f32: rows.data = filled({N, K}, scale).data; break;
    case WeightFormat::f16:
    case WeightFormat::bf16: {
      const Tensor halves = blank({N, K}, DType::bf16);
      for (int64_t i = 0; i < N * K; ++i)
        halves.bf16()[i] = format == WeightFormat::bf16
                               ? f32_to_bf16(static_cast<float>(rng_.normal() * scale))
                               : static_cast<uint16_t>(rng_.between(0, 0x33FF) | (rng_.percent(50) ? 0x8000 : 0));
      rows.data = halves.data;
      break;
    }
    case WeightFormat::nvfp4:
      rows.data = codes(N * K / 2, 0xFF, false);
      rows.scale = codes(N * K / 16, 0x40, false);
      rows.scale_2 = static_cast<float>(scale);
      break;
    default:
      rows.data = codes(N * K, 0x60, true);
      rows.scale = scales(format == WeightFormat::fp8_tensor ? 1
                          : format == WeightFormat::fp8_row  ? N
                                                             : (N + 127) / 128 * ((K + 127) / 128));
  }
  return rows;
}

Matrix OpCase::packed(const Matrix& rows) {
  if (memory_) return rows;  // Where weights stay in rows, and kernels read what tests made.
  auto arena = ops::WeightArena::make(stream_.device(), ops::packed_bytes(stream_.kind(), rows));
  WP_ASSERT(arena.ok());
  arenas_.push_back(std::make_unique<ops::WeightArena>(std::move(*arena)));
  return arenas_.back()->pack(rows);
}

const kernels::BatchView& OpCase::batch(const std::vector<SegmentCase>& segments, int64_t state_bytes,
                                        int64_t page_bytes) {
  const auto noise = [&](int64_t bytes) {
    Buffer made = buffer(bytes);
    auto* floats = reinterpret_cast<float*>(made.data());
    for (int64_t i = 0; i < bytes / 4; ++i) floats[i] = static_cast<float>(rng_.normal());
    return made;
  };
  int32_t row = 0, page = 0;
  std::vector<std::span<int32_t>> page_ids;
  std::vector<std::span<kernels::CaptureView>> capture_views;
  std::vector<kernels::SegmentView> views;
  std::vector<int32_t> row_segment, row_position;
  for (const SegmentCase& segment : segments) {
    records_.push_back(noise(state_bytes));
    before_.push_back(noise(state_bytes));
    std::vector<kernels::CaptureView> taken;
    for (int32_t rows : segment.captures) {
      captures_.push_back(noise(state_bytes));
      taken.push_back({rows, captures_.back().data()});
    }
    capture_views.push_back(copied(taken));
    std::vector<int32_t> ids;
    for (int32_t i = 0; i <= (segment.position + segment.rows) / 64; ++i) ids.push_back(page++);
    page_ids.push_back(copied(ids));
  }
  pages_ = noise(page * page_bytes);
  for (size_t i = 0; i < segments.size(); ++i) {
    const SegmentCase& segment = segments[i];
    views.push_back({.row_begin = row,
                     .rows = segment.rows,
                     .position = segment.position,
                     .state_in = segment.source == SegmentCase::zero    ? nullptr
                                 : segment.source == SegmentCase::other ? before_[i].data()
                                                                        : records_[i].data(),
                     .state_out = records_[i].data(),
                     .pages = page_ids[i].data(),
                     .captures = capture_views[i].data(),
                     .captures_count = static_cast<int32_t>(capture_views[i].size())});
    for (int32_t t = 0; t < segment.rows; ++t) {
      row_segment.push_back(static_cast<int32_t>(i));
      row_position.push_back(segment.position + t);
    }
    row += segment.rows;
  }
  view_ = {.rows = row,
           .segments_count = static_cast<int32_t>(views.size()),
           .segments = copied(views).data(),
           .row_segment = copied(row_segment).data(),
           .row_position = copied(row_position).data(),
           .pages = pages_.data(),
           .page_bytes = page_bytes};
  return view_;
}

kernels::BatchView OpCase::batch_of(const kernels::SegmentView& segment) {
  std::vector<int32_t> row_position(static_cast<size_t>(segment.rows));
  std::iota(row_position.begin(), row_position.end(), segment.position);
  return {.rows = segment.rows,
          .segments_count = 1,
          .segments = copied(std::vector{segment}).data(),
          .row_segment = copied(std::vector<int32_t>(row_position.size(), 0)).data(),
          .row_position = copied(row_position).data()};
}

Tensor OpCase::pages() const { return pages_.view(DType::f32, {pages_.size_bytes() / 4}); }

kernels::Workspace OpCase::workspace(int64_t context_max) {
  const int64_t bytes = ops::workspace_bytes_per_thread(context_max);
  const int64_t parts = stream_.device().workspaces();
  if (memory_ && parts * bytes <= memory_->work.size_bytes())
    return {.data = memory_->work.data(), .bytes_per_thread = bytes, .threads = parts, .context_max = context_max};
  const Tensor memory = blank({parts * bytes}, DType::u8);
  return {.data = memory.data, .bytes_per_thread = bytes, .threads = parts, .context_max = context_max};
}

void OpCase::give(const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.count(); ++i)
    results_.push_back(tensor.dtype == DType::f32   ? tensor.f32()[i]
                       : tensor.dtype == DType::i32 ? static_cast<float>(tensor.i32()[i])
                                                    : static_cast<float>(tensor.i64()[i]));
}

void OpCase::give_states(int64_t state_bytes) {
  for (const std::vector<Buffer>* records : {&records_, &captures_})
    for (const Buffer& record : *records) give(record.view(DType::f32, {state_bytes / 4}));
}

std::vector<SegmentCase> awkward_segments() {
  return {{.rows = 67, .captures = {64}},
          {.rows = 1, .position = 5, .source = SegmentCase::same},
          {.rows = 140, .position = 64, .source = SegmentCase::other, .captures = {64, 128}},
          {.rows = 3, .position = 62, .source = SegmentCase::same},
          {.rows = 2},
          {.rows = 1, .position = 191, .source = SegmentCase::same}};
}

std::vector<WeightFormat> all_formats() {
  return {WeightFormat::f32,     WeightFormat::f16,       WeightFormat::bf16, WeightFormat::fp8_tensor,
          WeightFormat::fp8_row, WeightFormat::fp8_block, WeightFormat::nvfp4};
}

}  // namespace wp::testing

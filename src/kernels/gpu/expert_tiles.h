// The rows of a pass by expert, in tiles: what the kernels of the experts walk.
#pragma once

#include "kernels/gpu/device_math.h"
#include "kernels/moe.h"

namespace wp::kernels::gpu {

// Up to `rows` choices of one expert, in the order of the grouping.
struct ExpertTile {
  int32_t expert, begin, end;
};
struct TileList {
  int32_t count;
  ExpertTile tiles[1];  // As many.
};

__device__ inline bool tile_of(const Experts& p, ExpertTile& tile) {
  const auto* list = reinterpret_cast<const TileList*>(p.workspace.data);
  if (static_cast<int32_t>(blockIdx.y) >= list->count) return false;
  tile = list->tiles[blockIdx.y];
  return true;
}

__device__ inline const float* input_row(const Experts& p, const ExpertTile& tile, int t) {
  return tile.begin + t < tile.end ? p.x + p.order[tile.begin + t] / p.A * p.M : nullptr;
}
__device__ inline const float* hidden_row(const Experts& p, const ExpertTile& tile, int t) {
  return tile.begin + t < tile.end ? p.hidden + int64_t{p.order[tile.begin + t]} * 2 * p.F : nullptr;
}

// In p.workspace, a list for tiles of so many rows; returns an upper bound of how many there are.
unsigned list_tiles(Stream& stream, const Experts& p, int32_t rows);

}  // namespace wp::kernels::gpu

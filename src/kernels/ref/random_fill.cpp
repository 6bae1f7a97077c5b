#include "kernels/ref/ref.h"

namespace wp::kernels::ref {

void random_fill(Stream&, const RandomBytes& p) { fill_random(p.fill, 0, p.fill.size_bytes, p.to); }

}  // namespace wp::kernels::ref

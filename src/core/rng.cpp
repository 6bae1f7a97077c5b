#include "core/rng.h"

#include <cmath>

namespace wp {

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - real()));
  return radius * std::cos(6.283185307179586 * real());
}

}  // namespace wp

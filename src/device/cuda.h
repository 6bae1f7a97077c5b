// NVIDIA's runtime behind Device. Null in a program that was built without it (CMake option WP_CUDA).
#pragma once

#include "device/device.h"

namespace wp {

#ifdef WP_CUDA
const Vendor* cuda_vendor();
#else
inline const Vendor* cuda_vendor() { return nullptr; }
#endif

}  // namespace wp

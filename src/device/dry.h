// The runtime of a device that does nothing (Device::make_dry).
#pragma once

#include "device/device.h"

namespace wp {

const Vendor* dry_vendor();

}  // namespace wp

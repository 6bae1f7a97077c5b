// A pass as operations see it: rows, segments, and raw pointers to their pages and states. model/ builds it for each
// pass; kernels read it.
#pragma once

#include "kernels/segments.h"

namespace wp::ops {

using kernels::BatchView;
using kernels::CaptureView;
using kernels::SegmentView;
using kernels::Workspace;

}  // namespace wp::ops

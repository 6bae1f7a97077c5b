#include <cuda_runtime_api.h>

#include <cstring>

#include "device/cuda.h"

namespace wp {
namespace {

// A call that fails after startup is fatal, and its reason is what a reader of the log needs.
void check(cudaError_t status) {
  if (status != cudaSuccess) assertion_failed(cudaGetErrorString(status), __FILE__, __LINE__);
}

Result<std::string> describe() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0)
    return Error{ErrorCode::unsupported, cat("device cuda: expected an NVIDIA GPU with its driver, found none (",
                                             cudaGetErrorString(status), ")")};
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  if (properties.major != 9)
    return Error{ErrorCode::unsupported, cat("device cuda: expected compute capability 9.0 (this build's), found ",
                                             properties.major, ".", properties.minor)};
  return cat(properties.name, ", ", properties.multiProcessorCount, " multiprocessors");
}

// Eight blocks of 256 threads fill a multiprocessor.
int workspaces() {
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  return 8 * multiprocessors;
}

std::byte* allocate(int64_t bytes, Memory memory) {
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  const cudaError_t status =
      memory == Memory::device ? cudaMalloc(&data, size) : cudaHostAlloc(&data, size, cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // It stays otherwise, and a later launch would report it.
    return nullptr;
  }
  check(status);
  if (memory == Memory::shared) std::memset(data, 0, size);
  else check(cudaMemset(data, 0, size));
  return static_cast<std::byte*>(data);
}

void release(std::byte* data, Memory memory) { check(memory == Memory::device ? cudaFree(data) : cudaFreeHost(data)); }

// The default stream waits for all streams of this process and they for it; a return before the copy's end must not
// show.
void copy(void* to, const void* from, int64_t bytes) {
  check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault));
  check(cudaDeviceSynchronize());
}

void fill(void* to, uint8_t value, int64_t bytes) {
  check(cudaMemset(to, value, static_cast<size_t>(bytes)));
  check(cudaDeviceSynchronize());
}

cudaStream_t of(void* stream) { return static_cast<cudaStream_t>(stream); }

void* make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  return stream;
}

void release_stream(void* stream) { check(cudaStreamDestroy(of(stream))); }

void upload(void* stream, void* to, const void* from, int64_t bytes) {
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, of(stream)));
}

void synchronize(void* stream) { check(cudaStreamSynchronize(of(stream))); }

// Other threads may go on with whatever they do.
void begin_capture(void* stream) { check(cudaStreamBeginCapture(of(stream), cudaStreamCaptureModeThreadLocal)); }

void* end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(of(stream), &graph));
  cudaGraphExec_t ready = nullptr;
  check(cudaGraphInstantiate(&ready, graph, 0));
  check(cudaGraphDestroy(graph));
  return ready;
}

void launch_graph(void* graph, void* stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), of(stream)));
}

void release_graph(void* graph) { check(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph))); }

void* make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  return event;
}

void release_event(void* event) { check(cudaEventDestroy(static_cast<cudaEvent_t>(event))); }

void record_event(void* event, void* stream) { check(cudaEventRecord(static_cast<cudaEvent_t>(event), of(stream))); }

double seconds_between(void* begin, void* end) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)));
  return milliseconds * 1e-3;
}

int64_t free_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

constexpr Vendor kVendor{
    .describe = describe,
    .workspaces = workspaces,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .make_stream = make_stream,
    .release_stream = release_stream,
    .upload = upload,
    .synchronize = synchronize,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .launch_graph = launch_graph,
    .release_graph = release_graph,
    .make_event = make_event,
    .release_event = release_event,
    .record_event = record_event,
    .seconds_between = seconds_between,
    .free_bytes = free_bytes,
};

}  // namespace

const Vendor* cuda_vendor() { return &kVendor; }

}  // namespace wp

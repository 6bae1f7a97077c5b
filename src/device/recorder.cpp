#include "device/recorder.h"

#include "device/device.h"
#include "device/stream_handle.h"

namespace wp {

double Recorder::now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - zero_).count(); }

void* Recorder::event(Stream& stream, size_t index) {
  device_ = &stream.device();
  while (events_.size() <= index) events_.push_back(device_->vendor_->make_event());
  return events_[index];
}

Recorder::~Recorder() {
  for (void* event : events_) device_->vendor_->release_event(event);
}

void Recorder::begin(Stream& stream, const char* op, const Cost& cost) {
  if (launches_.empty()) zero_ = std::chrono::steady_clock::now();
  launches_.push_back({.op = op, .place = stream.place(), .cost = cost});
  void* handle = stream_handle(stream);
  if (timing_ == Timing::events && handle)
    stream.device().vendor_->record_event(event(stream, 2 * launches_.size() - 2), handle);
  else launches_.back().begin_seconds = now();
}

void Recorder::end(Stream& stream) {
  void* handle = stream_handle(stream);
  if (timing_ == Timing::events && handle) {
    stream.device().vendor_->record_event(event(stream, 2 * launches_.size() - 1), handle);
    return;
  }
  stream.synchronize();
  launches_.back().seconds = now() - launches_.back().begin_seconds;
}

void Recorder::resolve() {
  if (events_.empty()) return;
  const Vendor& vendor = *device_->vendor_;
  for (size_t i = 0; i < launches_.size(); ++i) {
    launches_[i].begin_seconds = vendor.seconds_between(events_[0], events_[2 * i]);
    launches_[i].seconds = vendor.seconds_between(events_[2 * i], events_[2 * i + 1]);
  }
}

}  // namespace wp

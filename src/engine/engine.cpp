// The boundary: an EngineCore and the one thread that steps it.
#include "engine/engine.h"

#include <atomic>
#include <thread>
#include <utility>

#include "engine/channel.h"
#include "engine/core.h"
#include "engine/path_transfer.h"

namespace wp {

struct Engine::Impl {
  std::unique_ptr<EngineCore> core;
  std::atomic<bool> stop{false};
  std::thread thread;

  void run() {
    while (!stop.load(std::memory_order_acquire))
      if (!core->step()) core->wait();
    core->shut_down();
  }
};

Result<std::unique_ptr<Engine>> Engine::make(const Model& model, Device& device, const EngineLimits& limits,
                                             Clock& clock, DiskTier* tier) {
  auto impl = std::make_unique<Impl>();
  WP_TRY(impl->core, EngineCore::make(model, device, limits, clock, tier));
  impl->thread = std::thread([raw = impl.get()] { raw->run(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  impl_->core->drain();
  impl_->stop.store(true, std::memory_order_release);
  impl_->core->bell().ring();
  impl_->thread.join();
}

Result<TokenStream> Engine::submit(GenerateRequest request) {
  WP_TRY(std::shared_ptr<EventChannel> events, impl_->core->submit(std::move(request)));
  auto channel = std::make_shared<TokenStream::Channel>();
  channel->events = std::move(events);
  return TokenStream(std::move(channel));
}

void Engine::consolidate(Consolidation turn) { impl_->core->consolidate(std::move(turn)); }
void Engine::drain() { impl_->core->drain(); }
bool Engine::idle() const { return impl_->core->idle(); }
void Engine::cancel_all() { impl_->core->cancel_all(); }
EngineStats Engine::stats() const { return impl_->core->stats(); }
const EngineLimits& Engine::limits() const { return impl_->core->limits(); }
const ModelInfo& Engine::model_info() const { return impl_->core->model_info(); }
std::shared_ptr<PathTransfer> Engine::transfer(PathTransferOrder order) {
  return impl_->core->transfer(std::move(order));
}
std::shared_ptr<CacheViewOrder> Engine::view_cache(uint64_t domain) { return impl_->core->view_cache(domain); }
void Engine::flush_cache() { impl_->core->flush_cache(); }
void Engine::hold_conversation(const std::string& conversation) { impl_->core->hold_conversation(conversation); }

}  // namespace wp

#include "slots.h"

#include "core/cat.h"

namespace wp::sim {
namespace {

using Kind = PathTransferOrder::Kind;

constexpr size_t kMovingMax = 3, kSavedMax = 4;

}  // namespace

std::vector<std::string> SimulatedSlots::all_marks() {
  return {"slot saved",     "slot given back",       "slot erased",           "slot abandoned",
          "slot was empty", "slot refused: no room", "slot refused: damaged", "slot cut by the end"};
}

void SimulatedSlots::begin(EngineCore& core) {
  if (moving_.size() == kMovingMax) return;
  Moving moving;
  const int64_t dice = rng_.between(0, 99);
  moving.kind = dice < 45 ? Kind::send : dice < 85 && !saved_.empty() ? Kind::receive : Kind::erase;
  PathTransferOrder order{.kind = moving.kind,
                          .slot = static_cast<int32_t>(rng_.between(0, core.limits().sequences - 1))};
  if (rng_.percent(20)) order.domain = static_cast<uint64_t>(rng_.between(0, 2));
  if (moving.kind == Kind::receive) {
    moving.path = saved_[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(saved_.size()) - 1))];
    order.domain = moving.path.domain;
    order.tokens = moving.path.tokens;
    moving.damaged = rng_.percent(15);
    if (moving.damaged) {
      auto& parts = moving.path.parts;
      const auto at = rng_.between(0, static_cast<int64_t>(parts.size()) - 1);
      if (rng_.percent(50)) parts[static_cast<size_t>(at)].bytes.pop_back();
      else parts[static_cast<size_t>(at)].end += kPageTokens;
    }
    known_.add(moving.path.domain, moving.path.tokens);
  }
  moving.transfer = core.transfer(std::move(order));
  moving_.push_back(std::move(moving));
}

void SimulatedSlots::after_step(bool to_the_end) {
  for (Moving& moving : moving_) go_on(moving, to_the_end);
  std::erase_if(moving_, [](const Moving& moving) { return moving.gone; });
}

void SimulatedSlots::go_on(Moving& moving, bool to_the_end) {
  if (!to_the_end && rng_.percent(2)) {
    moving.transfer->abandon();
    moving.gone = true;
    return mark_("slot abandoned");
  }
  if (moving.kind == Kind::send) return take(moving, to_the_end);
  if (moving.kind == Kind::receive) give(moving);
  if (!moving.gone && moving.transfer->has_ended()) end(moving);
}

void SimulatedSlots::take(Moving& moving, bool to_the_end) {
  if (!std::exchange(moving.begun, true)) {  // A step has decided what will come.
    auto path = moving.transfer->path();
    if (!path.ok()) return refused(moving, path.error()), static_cast<void>(moving.gone = true);
    moving.path.domain = path->domain;
    moving.path.tokens = std::move(path->tokens);
    if (known_.known(moving.path.domain, moving.path.tokens, 0) != std::ssize(moving.path.tokens))
      wrong_("a slot's path is none that anybody brought");
  }
  while (moving.transfer->can_take() && (to_the_end || rng_.percent(80))) {
    auto part = moving.transfer->take();
    if (!part.ok()) return refused(moving, part.error()), static_cast<void>(moving.gone = true);
    if (!*part) return end(moving);
    moving.path.parts.push_back(std::move(**part));
  }
}

void SimulatedSlots::give(Moving& moving) {
  while (moving.given < moving.path.parts.size() && moving.transfer->can_give()) {
    if (auto given = moving.transfer->give(moving.path.parts[moving.given]); !given.ok()) {
      refused(moving, given.error());
      moving.gone = true;
      return;
    }
    ++moving.given;
  }
  if (moving.given == moving.path.parts.size() && !std::exchange(moving.finished, true)) moving.transfer->all_given();
}

void SimulatedSlots::end(Moving& moving) {
  moving.gone = true;
  const auto tokens = moving.transfer->finish();
  if (!tokens.ok()) return refused(moving, tokens.error());
  const auto length = static_cast<int64_t>(moving.path.tokens.size());
  switch (moving.kind) {
    case Kind::erase: return mark_("slot erased");
    case Kind::receive:
      if (*tokens != length) wrong_(cat("a slot of ", length, " tokens was restored to ", *tokens));
      return mark_("slot given back");
    case Kind::send: break;
  }
  if (*tokens != length) wrong_(cat("a slot of ", length, " tokens was saved as ", *tokens));
  mark_("slot saved");
  if (saved_.size() < kSavedMax) saved_.push_back(std::move(moving.path));
  else saved_[static_cast<size_t>(rng_.between(0, kSavedMax - 1))] = std::move(moving.path);
}

void SimulatedSlots::refused(const Moving& moving, const Error& error) {
  switch (error.code) {
    case ErrorCode::unavailable: return mark_("slot cut by the end");
    case ErrorCode::overloaded: return mark_("slot refused: no room");
    case ErrorCode::bad_file:
      if (!moving.damaged) wrong_(cat("a whole slot was refused: ", error.message));
      return mark_("slot refused: damaged");
    case ErrorCode::bad_request:
      if (moving.kind != Kind::receive) return mark_("slot was empty");
      break;
    default: break;
  }
  wrong_(error.message);
}

}  // namespace wp::sim

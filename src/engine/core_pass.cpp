// The pass of a step: what it needs (pages, captures, tokens), and what follows from it (anchors, tokens, ends).
#include <algorithm>
#include <utility>

#include "engine/core.h"

namespace wp {

void EngineCore::run_prefill() {
  segments_.clear();
  captures_.clear();
  captures_begin_.clear();
  count_step();
  for (const Piece& piece : plan_.pieces) {
    Sequence& sequence = *running_[static_cast<size_t>(piece.sequence)];
    const int64_t end = piece.position + piece.rows;
    sequence.steps_waited = 0;
    sequence.lease.extend(end);
    captures_begin_.push_back(static_cast<int32_t>(captures_.size()));
    reserve_captures(sequence, piece.position, end);
    StepSegment segment;
    segment.tokens =
        std::span(sequence.tokens).subspan(static_cast<size_t>(piece.position), static_cast<size_t>(piece.rows));
    segment.position = piece.position;
    segment.slot = sequence.slot;
    segment.pages = sequence.lease.pages();
    if (sequence.state_in_slot) {
      segment.source = StateSource::slot;
    } else if (piece.position > 0) {
      segment.source = StateSource::anchor;
      segment.anchor = sequence.lease.match().anchor;
    }
    if (sequence.request.prompt_logprobs) segment.logits = LogitRows::all;
    else if (end == sequence.prompt) segment.logits = LogitRows::last;
    segments_.push_back(segment);
  }
  captures_begin_.push_back(static_cast<int32_t>(captures_.size()));
  // Only now, when the list grows no more.
  for (size_t i = 0; i < segments_.size(); ++i) segments_[i].captures = captures_of(i);

  const int64_t begun_ns = clock_.now_ns();
  for (const Piece& piece : plan_.pieces) {
    Sequence& sequence = *running_[static_cast<size_t>(piece.sequence)];
    if (sequence.prefill_begin_ns < 0) sequence.prefill_begin_ns = begun_ns;
  }
  step_->run(Phase::prefill, segments_);
  scheduler_.measured(plan_, clock_.now_ns() - begun_ns);
  ++counts_.steps_prefill;
  counts_.computed_tokens += plan_.rows;
  for (const auto& sequence : running_)
    if (sequence && sequence->phase == SequencePhase::decode) sequence->prefill_since_token = true;
  for (size_t i = 0; i < plan_.pieces.size(); ++i) finish_piece(plan_.pieces[i], i);
}

void EngineCore::count_step() {
  for (const auto& sequence : running_)
    if (sequence && sequence->phase == SequencePhase::prefill)
      counts_.steps_waited_max = std::max(counts_.steps_waited_max, ++sequence->steps_waited);
}

// Anchors for the capture points that this piece crosses. A point for which there is none is passed over: a capture is
// best effort and never cuts a pass.
void EngineCore::reserve_captures(Sequence& sequence, int64_t begin, int64_t end) {
  std::vector<CapturePoint>& ahead = sequence.captures;
  size_t taken = 0;
  for (; taken < ahead.size() && ahead[taken].position <= end; ++taken) {
    const CapturePoint& point = ahead[taken];
    WP_ASSERT(point.position > begin);
    if (point.capture_class == CaptureClass::ladder && cache_->stats().anchors_free == 0) continue;
    const std::optional<AnchorId> anchor = cache_->reserve_anchor(sequence.lease, point.position, point.capture_class);
    if (anchor) captures_.push_back({.position = point.position, .anchor = *anchor});
  }
  ahead.erase(ahead.begin(), ahead.begin() + static_cast<ptrdiff_t>(taken));
}

std::span<const Capture> EngineCore::captures_of(size_t segment) const {
  return std::span(captures_).subspan(static_cast<size_t>(captures_begin_[segment]),
                                      static_cast<size_t>(captures_begin_[segment + 1] - captures_begin_[segment]));
}

// At once, so that other requests can use it while this one goes on. Nothing below reads the slot: an anchor with all
// its receipts is whole whatever happens to the sequence.
void EngineCore::publish_captures(Sequence& sequence, size_t segment, bool numbers_are_good) {
  for (const Capture& capture : captures_of(segment)) {
    const bool complete = step_->capture_complete(capture.anchor);
    if (!complete) ++counts_.captures_incomplete;
    if (!complete || !numbers_are_good) {
      cache_->abandon_anchor(capture.anchor);
      continue;
    }
    const std::span<const TokenId> covered = std::span(sequence.tokens).first(static_cast<size_t>(capture.position));
    WP_ASSERT(capture.position <= sequence.prompt && capture.position <= sequence.computed);
    if (cache_->publish(sequence.lease, covered, capture.position, capture.anchor))
      spill_->published(sequence.lease, covered, sequence.request.cache.domain, capture.anchor);
  }
}

void EngineCore::finish_piece(const Piece& piece, size_t segment) {
  Sequence& sequence = *running_[static_cast<size_t>(piece.sequence)];
  sequence.computed = piece.position + piece.rows;
  sequence.state_in_slot = true;
  const bool last = sequence.computed == sequence.prompt;
  if (last) {
    sequence.stats.prefill_ns = clock_.now_ns() - sequence.prefill_begin_ns;
    consolidator_->end_prefill(sequence.unconsolidated, sequence.stats.computed_tokens, sequence.stats.prefill_ns);
  }

  bool good = !sequence.request.prompt_logprobs || take_prompt_logprobs(sequence, piece, segment);
  std::optional<Sampled> sampled;
  if (good && last && sequence.request.max_tokens > 0) {
    const int64_t row = sequence.request.prompt_logprobs ? piece.rows - 1 : 0;
    sampled = sequence.sampler.sample(step_->logits(segment, row), sequence.prompt, sampler_scratch_);
    good = sampled.has_value();
  }
  publish_captures(sequence, segment, good);
  if (!good) return end_for_numbers(sequence);
  if (!last) {
    if (sequence.request.progress) send_progress(sequence);
    return;
  }
  if (sequence.request.prompt_logprobs) send_started(sequence);
  if (!sampled) return end_running(sequence, FinishReason::length);
  sequence.phase = SequencePhase::decode;
  take_token(sequence, std::move(*sampled));
}

bool EngineCore::take_prompt_logprobs(Sequence& sequence, const Piece& piece, size_t segment) {
  for (int32_t row = 0; row < piece.rows; ++row) {
    const int64_t next = piece.position + row + 1;
    if (next >= sequence.prompt) break;
    const std::span<const float> logits = step_->logits(segment, row);
    if (!all_finite(logits)) return false;
    const auto token = static_cast<size_t>(sequence.tokens[static_cast<size_t>(next)]);
    sequence.prompt_logprobs.push_back(static_cast<float>(logits[token] - log_sum_exp(logits)));
  }
  return true;
}

void EngineCore::run_decode() {
  segments_.clear();
  count_step();
  for (const Piece& piece : plan_.pieces) {
    Sequence& sequence = *running_[static_cast<size_t>(piece.sequence)];
    sequence.lease.extend(piece.position + 1);
    StepSegment segment;
    segment.tokens = std::span(sequence.tokens).subspan(static_cast<size_t>(piece.position), 1);
    segment.position = piece.position;
    segment.source = StateSource::slot;
    segment.slot = sequence.slot;
    segment.pages = sequence.lease.pages();
    segment.logits = LogitRows::last;
    segments_.push_back(segment);
  }
  const int64_t begun_ns = clock_.now_ns();
  step_->run(Phase::decode, segments_);
  ++counts_.steps_decode;
  for (size_t i = 0; i < plan_.pieces.size(); ++i) {
    Sequence& sequence = *running_[static_cast<size_t>(plan_.pieces[i].sequence)];
    ++sequence.computed;
    std::optional<Sampled> sampled = sequence.sampler.sample(step_->logits(i), sequence.computed, sampler_scratch_);
    if (sampled) take_token(sequence, std::move(*sampled));
    else end_for_numbers(sequence);
  }
  scheduler_.measured(plan_, clock_.now_ns() - begun_ns);  // Sampling is part of a stream's gap.
}

void EngineCore::end_for_numbers(Sequence& sequence) {
  end_running(sequence, FinishReason::error,
              cat("numeric: expected finite logits at position ", sequence.computed - 1, ", found NaN or infinity"));
}

// A stop token is counted and ends the answer; it is not part of it.
void EngineCore::take_token(Sequence& sequence, Sampled sampled) {
  const int64_t now_ns = clock_.now_ns();
  note_gap(sequence, now_ns);
  const GenerateRequest& request = sequence.request;
  if (sampled.end == Sampled::End::whole) return end_running(sequence, FinishReason::stop);
  if (sampled.end == Sampled::End::stuck) return end_running(sequence, FinishReason::stuck);
  sequence.tokens.push_back(sampled.token);
  ++sequence.generated;
  ++counts_.generated_tokens;
  const bool stops = !request.ignore_stop_tokens && std::find(request.stop_tokens.begin(), request.stop_tokens.end(),
                                                              sampled.token) != request.stop_tokens.end();
  if (stops) return end_running(sequence, FinishReason::stop);
  TokenEvent event;
  event.kind = TokenEvent::Kind::token;
  event.token = sampled.token;
  event.logprob = sampled.logprob;
  event.top = std::move(sampled.top);
  sequence.channel->push(std::move(event));
  if (sequence.generated == request.max_tokens) end_running(sequence, FinishReason::length);
}

void EngineCore::note_gap(Sequence& sequence, int64_t now_ns) {
  if (sequence.first_token_ns < 0) {
    sequence.first_token_ns = now_ns;
    sequence.stats.ttft_ns = now_ns - sequence.submitted_ns;
  } else if (sequence.prefill_since_token && !sequence.paused) {
    counts_.stall_ns_max = std::max(counts_.stall_ns_max, now_ns - sequence.last_token_ns);
  }
  sequence.last_token_ns = now_ns;
  sequence.prefill_since_token = sequence.paused = false;
}

}  // namespace wp

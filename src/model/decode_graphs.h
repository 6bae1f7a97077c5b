// DecodeGraphs: a decode pass as one graph for each number of rows, since launching a thousand kernels takes longer
// than running them. Part of a Scratch, whose addresses the graphs hold. Engine thread.
#pragma once

#include <vector>

#include "device/graph.h"
#include "model/model.h"

namespace wp {

class DecodeGraphs {
 public:
  DecodeGraphs() { passes_.reserve(kPassesMax); }

  // Runs `compute`, which launches the pass on the stream: as it is in prefill, on a CPU, under a recorder and the
  // first time (kernels are loaded then, which a capture cannot do); written down the second time; from then on as a
  // graph.
  template <class Compute>
  void run(Stream& stream, const Batch& batch, const Pools& pools, const Tensor& logits, const Compute& compute) {
    if (batch.phase != Phase::decode || !stream.can_capture() || stream.recorder() || stream.stand_in())
      return compute();
    Pass* pass = find({batch.tokens.size(), batch.logit_rows.size(), pools.pages_begin(), logits.data});
    if (!pass) return compute();
    if (!pass->graph && !std::exchange(pass->seen, true)) return compute();
    if (!pass->graph) pass->graph = Graph::capture(stream, compute);
    pass->graph.launch(stream);
  }

 private:
  static constexpr size_t kPassesMax = 64;
  // All that a graph holds and that may differ from one decode pass to the next.
  struct Key {
    size_t rows, logit_rows;
    const void *pages, *logits;
    bool operator==(const Key&) const = default;
  };
  struct Pass {
    Key key;
    bool seen = false;
    Graph graph;
  };

  Pass* find(const Key& key) {
    for (Pass& pass : passes_)
      if (pass.key == key) return &pass;
    if (passes_.size() == kPassesMax) return nullptr;
    passes_.push_back({key});
    return &passes_.back();
  }

  std::vector<Pass> passes_;
};

}  // namespace wp

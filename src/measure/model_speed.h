// Speed of a model's forward pass, as the tables that people know have it: pp512, tg128, @ d8192. One thread drives;
// the device's threads compute.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "device/device.h"
#include "measure/peak.h"
#include "model/model.h"

namespace wp::measure {

struct BenchOptions {
  std::vector<int64_t> prompts;    // pp of each.
  std::vector<int64_t> generated;  // tg of each.
  std::vector<int64_t> depths;     // Each test after so many tokens, on the grid.
  int64_t repetitions = 5;
  int64_t pass_tokens = 512;
  std::function<void(const std::string& test, int64_t done, int64_t total)> progress;
};

struct BenchRow {
  std::string test;  // "pp512 @ d8192"
  bool decode = false;
  int64_t tokens = 0, depth = 0;
  std::vector<double> seconds;  // Of each repetition.
  double tokens_per_s = 0, deviation = 0;
  double multiply_adds = 0;  // Of one repetition, those that the model needs.
  double share_of_peak = 0;  // At the mean speed.
  double bytes = 0;          // Decode of one: that a repetition must read or write, each once; 0: not counted.
};

// The speed of a row whose repetitions were timed, and its share of the peak.
void fill_speeds(BenchRow& row, const FmaPeak& peak);

// Multiply-adds that the model needs for rows [begin, begin + rows), with `logit_rows` of them through the head.
double multiply_adds_needed(const ModelInfo& info, int64_t begin, int64_t rows, int64_t logit_rows);

// Bytes that decoding `rows` tokens one by one from `begin` must move: weights of each token, its recurrent state in
// and out, the keys and values it attends to.
double decode_bytes_needed(const ModelInfo& info, int64_t begin, int64_t rows);

Result<std::vector<BenchRow>> run_bench(const Model& model, Device& device, const BenchOptions& options,
                                        const FmaPeak& peak);

enum class BenchFormat { markdown, csv, json };
std::string bench_text(const std::string& model_name, const ModelInfo& info, const Device& device,
                       const std::vector<BenchRow>& rows, const FmaPeak& peak, double copy_bandwidth,
                       BenchFormat format);

}  // namespace wp::measure

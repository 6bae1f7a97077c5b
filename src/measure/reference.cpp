#include "measure/reference.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace wp::measure {
namespace {

constexpr int64_t kTokenMax = 1 << 24;  // Larger ids are a damaged file.

Result<std::vector<int32_t>> read_ids(const Checkpoint& file, const std::string& name) {
  WP_TRY(const Tensor ids, file.bind(name, DType::i64, {-1}));
  std::vector<int32_t> out;
  for (int64_t i = 0; i < ids.count(); ++i) {
    int64_t id = 0;
    std::memcpy(&id, ids.data + i * 8, 8);
    if (id < 0 || id > kTokenMax)
      return Error{ErrorCode::bad_file, cat(file.path(), ": ", name, "[", i, "]: expected a token id, found ", id)};
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

template <class T>
std::span<const T> row_of(const Tensor& tensor, int64_t row, DType dtype) {
  return {tensor.as<T>(dtype) + row * tensor.dim(1), static_cast<size_t>(tensor.dim(1))};
}

Result<std::vector<int32_t>> ids_of(const Json& prompt, const char* name) {
  std::vector<int32_t> out;
  if (!prompt.contains(name) || !prompt[name].is_array())
    return Error{ErrorCode::bad_file, cat("prompts.json: expected a list '", name, "' in each prompt, found none")};
  for (const Json& id : prompt[name]) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kTokenMax)
      return Error{ErrorCode::bad_file, cat("prompts.json: ", name, ": expected token ids, found ", dump_json(id))};
    out.push_back(id.get<int32_t>());
  }
  return out;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, int64_t size_bytes_max) {
  std::error_code fault;
  const auto size_bytes = std::filesystem::file_size(path, fault);
  std::ifstream file(path, std::ios::binary);
  if (fault || !file) return Error{ErrorCode::bad_request, cat(path, ": expected a file that can be read, found none")};
  if (static_cast<int64_t>(size_bytes) > size_bytes_max)
    return Error{ErrorCode::bad_request,
                 cat(path, ": expected at most ", size_bytes_max, " bytes, found ", int64_t(size_bytes))};
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Result<Reference> Reference::read(const std::string& path) {
  WP_TRY(Checkpoint file, Checkpoint::open(path));
  const std::string beside = (std::filesystem::path(path).parent_path() / "prompts.json").string();
  Reference reference(std::move(file));
  if (reference.file_->has("input_ids")) {
    WP_TRY(reference.read_whole());
  } else if (std::filesystem::exists(beside)) {
    WP_TRY(reference.read_top(beside));
  } else {
    return Error{ErrorCode::bad_file, cat(path,
                                          ": expected input_ids and logits in it, or prompts.json beside it; "
                                          "found neither")};
  }
  return reference;
}

Result<void> Reference::read_whole() {
  ReferencePrompt prompt;
  prompt.name = "prompt";
  WP_TRY(prompt.tokens, read_ids(*file_, "input_ids"));
  if (prompt.tokens.empty()) return Error{ErrorCode::bad_file, cat(file_->path(), ": input_ids: expected tokens")};
  const int64_t T = static_cast<int64_t>(prompt.tokens.size());
  WP_TRY(const Tensor logits, file_->bind("logits", DType::f32, {T, -1}));
  if (logits.dim(1) == 0) return Error{ErrorCode::bad_file, cat(file_->path(), ": logits: expected columns")};
  for (int64_t t = 0; t < T; ++t)
    prompt.rows.push_back({.position = t, .logits = row_of<const float>(logits, t, DType::f32)});
  if (file_->has("greedy")) {
    WP_TRY(prompt.greedy, read_ids(*file_, "greedy"));
  }
  prompts_.push_back(std::move(prompt));
  return {};
}

Result<void> Reference::read_top(const std::string& prompts_path) {
  WP_TRY(const std::string text, read_text_file(prompts_path, 256 << 20));
  auto parsed = parse_json(text, {.size_bytes_max = 256 << 20});
  if (!parsed.ok()) return std::move(parsed).error().within(prompts_path);
  if (!parsed->is_array()) return Error{ErrorCode::bad_file, cat(prompts_path, ": expected a list of prompts")};
  for (const Json& entry : *parsed) {
    ReferencePrompt prompt;
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string())
      return Error{ErrorCode::bad_file, cat(prompts_path, ": expected prompts with a name")};
    prompt.name = entry["name"].get<std::string>();
    WP_TRY(prompt.tokens, ids_of(entry, "ids"));
    WP_TRY(prompt.greedy, ids_of(entry, "greedy_fp32"));
    if (entry.contains("greedy_fp32_gap") && entry["greedy_fp32_gap"].is_array())
      for (const Json& gap : entry["greedy_fp32_gap"])
        prompt.greedy_gaps.push_back(gap.is_number() ? gap.get<double>() : 0);
    const int64_t T = static_cast<int64_t>(prompt.tokens.size());
    WP_TRY(const Tensor positions, file_->bind(prompt.name + ".positions", DType::i32, {-1}));
    const int64_t R = positions.count();
    WP_TRY(const Tensor values, file_->bind(prompt.name + ".top_values", DType::f32, {R, -1}));
    WP_TRY(const Tensor ids, file_->bind(prompt.name + ".top_ids", DType::i32, {R, values.dim(1)}));
    WP_TRY(const Tensor last, file_->bind(prompt.name + ".last_logits", DType::f32, {-1}));
    int64_t before = -1;
    for (int64_t row = 0; row < R; ++row) {
      const int64_t position = positions.i32()[row];
      if (position <= before || position >= T)
        return Error{ErrorCode::bad_file, cat(file_->path(), ": ", prompt.name,
                                              ".positions: expected ascending ones below ", T, ", found ", position)};
      before = position;
      ReferenceRow made{.position = position,
                        .top_values = row_of<const float>(values, row, DType::f32),
                        .top_ids = row_of<const int32_t>(ids, row, DType::i32)};
      if (made.top_ids.empty())
        return Error{ErrorCode::bad_file, cat(file_->path(), ": ", prompt.name, ".top_ids: expected columns")};
      for (int32_t id : made.top_ids)
        if (id < 0 || id >= last.count())
          return Error{ErrorCode::bad_file, cat(file_->path(), ": ", prompt.name, ".top_ids: expected ids below ",
                                                last.count(), ", found ", id)};
      if (position == T - 1) made.logits = {last.f32(), static_cast<size_t>(last.count())};
      prompt.rows.push_back(made);
    }
    prompts_.push_back(std::move(prompt));
  }
  return {};
}

}  // namespace wp::measure

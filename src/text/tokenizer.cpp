#include "text/tokenizer.h"

#include "text/normalize.h"
#include "text/read_file.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace wp {

struct Tokenizer::Impl {
  explicit Impl(Vocabulary data) : vocabulary(std::move(data)) {}
  Vocabulary vocabulary;
};

namespace {

constexpr int64_t kFileBytesMax = 256 << 20;

// One encode call: its buffers and its output.
class Encoding {
 public:
  Encoding(const Vocabulary& vocabulary, bool added_tokens) : vocabulary_(vocabulary), added_tokens_(added_tokens) {}

  std::vector<TokenId> run(std::string_view text) {
    if (!added_tokens_) {
      bytes(text);
      return std::move(out_);
    }
    std::vector<TextSegment> segments;
    vocabulary_.raw_matcher.split(text, segments);
    for (const TextSegment& segment : segments) {
      if (segment.id >= 0) out_.push_back(segment.id);
      else bytes(segment.text);
    }
    return std::move(out_);
  }

 private:
  // Any bytes: valid runs as text, each byte between them as its own token.
  void bytes(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = utf8_valid_until(text, at);
      if (end > at) characters(text.substr(at, end - at));
      at = end;
      if (at == text.size()) break;
      for (int left = utf8_step(text, at).length; left > 0; --left)
        out_.push_back(vocabulary_.byte_ids[static_cast<uint8_t>(text[at++])]);
    }
  }

  void characters(std::string_view text) {
    if (vocabulary_.nfc) text = to_nfc(text, normalized_);
    if (!added_tokens_) return words(text);
    std::vector<TextSegment> segments;
    vocabulary_.normalized_matcher.split(text, segments);
    for (const TextSegment& segment : segments) {
      if (segment.id >= 0) out_.push_back(segment.id);
      else words(segment.text);
    }
  }

  void words(std::string_view text) {
    ends_.clear();
    vocabulary_.split.split(text, ends_);
    size_t begin = 0;
    for (const size_t end : ends_) {
      word(text.substr(begin, end - begin));
      begin = end;
    }
  }

  void word(std::string_view text) {
    if (!vocabulary_.whole_words.empty()) {
      const auto found = vocabulary_.whole_words.find(text);
      if (found != vocabulary_.whole_words.end()) return out_.push_back(found->second);
    }
    ids_.clear();
    for (const char c : text) ids_.push_back(vocabulary_.byte_ids[static_cast<uint8_t>(c)]);
    merge_word(vocabulary_.merges, ids_, scratch_, out_);
  }

  const Vocabulary& vocabulary_;
  const bool added_tokens_;
  std::string normalized_;
  std::vector<size_t> ends_;
  std::vector<TokenId> ids_;
  MergeScratch scratch_;
  std::vector<TokenId> out_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  WP_TRY(Vocabulary vocabulary, read_vocabulary(tokenizer_json));
  return Tokenizer(std::make_unique<Impl>(std::move(vocabulary)));
}

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  WP_TRY(const std::string content, read_text_file(path, kFileBytesMax));
  auto parsed = parse(content);
  if (!parsed.ok()) return std::move(parsed).error().within(path);
  return parsed;
}

std::vector<TokenId> Tokenizer::encode_with_special(std::string_view text) const {
  return Encoding(impl_->vocabulary, true).run(text);
}

std::vector<TokenId> Tokenizer::encode_plain(std::string_view text) const {
  return Encoding(impl_->vocabulary, false).run(text);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  std::string out;
  for (const TokenId token : tokens)
    if (!skip_special || !is_special(token)) out += bytes(token);
  return out;
}

std::string_view Tokenizer::bytes(TokenId token) const {
  return token >= 0 && token < vocabulary_count() ? impl_->vocabulary.bytes_of_id[token] : std::string_view();
}

std::optional<TokenId> Tokenizer::find(std::string_view added_token) const {
  for (const AddedToken& token : impl_->vocabulary.added)
    if (token.content == added_token) return token.id;
  return std::nullopt;
}

bool Tokenizer::is_added(TokenId token) const {
  return token >= 0 && token < vocabulary_count() && impl_->vocabulary.added_flags[token] != 0;
}

bool Tokenizer::is_special(TokenId token) const {
  return token >= 0 && token < vocabulary_count() && (impl_->vocabulary.added_flags[token] & Vocabulary::kSpecial) != 0;
}

int32_t Tokenizer::vocabulary_count() const { return static_cast<int32_t>(impl_->vocabulary.bytes_of_id.size()); }

uint64_t Tokenizer::fingerprint() const { return impl_->vocabulary.fingerprint; }

}  // namespace wp

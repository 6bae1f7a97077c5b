// Tokenizer: byte-level BPE as the Qwen family uses it, read from a Hugging Face tokenizer.json. Const once loaded;
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace wp {

using TokenId = int32_t;

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json. Refuses what it does not implement (another model than BPE, another normalizer than
  // none or NFC) by name.
  static Result<Tokenizer> load(const std::string& directory);
  static Result<Tokenizer> parse(std::string_view tokenizer_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Text whose added tokens ("<|im_start|>") become their ids: for rendered templates and trusted text only.
  std::vector<TokenId> encode_with_special(std::string_view text) const;
  // Text that never becomes an added token, whatever it says.
  std::vector<TokenId> encode_plain(std::string_view text) const;

  // The bytes of the tokens. Ids without a token (padding rows of the embedding) give nothing. Bytes may be cut
  // anywhere in a character; see Detokenizer for streams.
  std::string decode(std::span<const TokenId> tokens, bool skip_special = false) const;
  std::string_view bytes(TokenId token) const;  // "" where the id has none.

  std::optional<TokenId> find(std::string_view added_token) const;  // Exact content of an added token.
  bool is_added(TokenId token) const;                               // One of the added tokens, special or not.
  bool is_special(TokenId token) const;                             // Flagged special: skipped by skip_special.
  int32_t vocabulary_count() const;                                 // Ids that decode: 0 .. count-1.
  uint64_t fingerprint() const;                                     // Hash of the file's content.

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp

// The data of a tokenizer: what each id's bytes are, how bytes become first ids, which pairs merge, which tokens were
// added. Filled by the reader of tokenizer.json (vocabulary.cpp), const afterwards; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/split_pattern.h"

namespace wp {

struct Vocabulary {
  Vocabulary(MergeTable merge_table, SplitPattern split_pattern)
      : merges(std::move(merge_table)), split(std::move(split_pattern)) {}

  std::vector<std::string> bytes_of_id;  // "" where the id has no token.
  int32_t byte_ids[256];                 // The token of each single byte.
  MergeTable merges;
  SplitPattern split;
  bool nfc = false;
  // With `ignore_merges`: words that are tokens as they stand. Keys view bytes_of_id.
  std::unordered_map<std::string_view, int32_t> whole_words;
  std::vector<AddedToken> added;
  std::vector<uint8_t> added_flags;  // Of each id: kAdded, kSpecial.
  AddedTokenMatcher raw_matcher, normalized_matcher;
  uint64_t fingerprint = 0;

  static constexpr uint8_t kAdded = 1, kSpecial = 2;
};

// Reads tokenizer.json. What it asks for and is not implemented is an error that names it.
Result<Vocabulary> read_vocabulary(std::string_view tokenizer_json);

}  // namespace wp

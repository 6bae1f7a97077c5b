#include "text/vocabulary.h"

#include <optional>

#include "core/hash.h"
#include "core/json.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace wp {
namespace {

constexpr int64_t kFileBytesMax = 256 << 20;
constexpr int64_t kIdMax = (1 << 22) - 1;  // Sixteen times the largest vocabulary in use.

Error bad(std::string message) { return {ErrorCode::bad_file, std::move(message)}; }
Error unsupported(std::string message) { return {ErrorCode::unsupported, std::move(message)}; }

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string type_of(const Json& object) {
  const Json* type = member(object, "type");
  return type && type->is_string() ? type->get<std::string>() : "something without a type";
}

// Absent, null, false, 0 and "" all say that a feature is unused.
Result<void> expect_unused(const Json& object, std::string_view where, const char* name) {
  const Json* value = member(object, name);
  if (!value || *value == false || *value == "" || (value->is_number() && *value == 0)) return {};
  return unsupported(cat(where, ".", name, ": expected none, found ", dump_json(*value), ", which is not implemented"));
}

bool flag(const Json& object, const char* name, bool otherwise) {
  const Json* value = member(object, name);
  return value && value->is_boolean() ? value->get<bool>() : otherwise;
}

// The characters that stand for bytes in a byte-level vocabulary: printable Latin-1 for itself, the rest from U+0100.
struct ByteAlphabet {
  uint32_t character_of[256];
  int byte_of[512];

  ByteAlphabet() {
    for (int& byte : byte_of) byte = -1;
    uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      character_of[byte] = printable ? static_cast<uint32_t>(byte) : next++;
      byte_of[character_of[byte]] = byte;
    }
  }
  // The bytes that `token` spells, or none if it has a character that stands for none.
  std::optional<std::string> bytes(std::string_view token) const {
    std::string out;
    for (size_t at = 0; at < token.size();) {
      const Utf8Step step = utf8_step(token, at);
      if (step.kind != Utf8Kind::valid || step.character >= 512 || byte_of[step.character] < 0) return std::nullopt;
      out += static_cast<char>(byte_of[step.character]);
      at += step.length;
    }
    return out;
  }
};

class VocabularyReader {
 public:
  explicit VocabularyReader(const Json& root) : root_(root) {}

  Result<Vocabulary> run() {
    const Json* model = member(root_, "model");
    if (!model) return bad("model: expected an object, found none");
    WP_TRY(check_model(*model));
    WP_TRY(SplitPattern split, read_split());
    const Json* merges = member(*model, "merges");
    if (!merges || !merges->is_array()) return bad("model.merges: expected an array, found none");
    Vocabulary out(MergeTable(merges->size()), std::move(split));
    WP_TRY(out.nfc, read_normalizer());
    WP_TRY(check_processors());
    WP_TRY(read_tokens(*model, out));
    WP_TRY(read_added(out));
    WP_TRY(read_merges(*merges, out));
    if (flag(*model, "ignore_merges", false))
      for (size_t id = 0; id < out.bytes_of_id.size(); ++id)
        if (!out.bytes_of_id[id].empty() && out.added_flags[id] == 0)
          out.whole_words.emplace(out.bytes_of_id[id], static_cast<int32_t>(id));
    return out;
  }

 private:
  static Result<void> check_model(const Json& model) {
    // Old files leave the type out; merges then say that it is BPE.
    if (member(model, "type") && type_of(model) != "BPE")
      return unsupported(cat("model.type: expected BPE, found ", type_of(model)));
    for (const char* name : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
      WP_TRY(expect_unused(model, "model", name));
    return {};
  }

  Result<bool> read_normalizer() const {
    const Json* normalizer = member(root_, "normalizer");
    if (!normalizer) return false;
    if (type_of(*normalizer) == "NFC") return true;
    return unsupported(cat("normalizer: expected none or NFC, found ", type_of(*normalizer)));
  }

  Result<void> check_processors() const {
    for (const char* name : {"post_processor", "decoder"}) {
      const Json* found = member(root_, name);
      if (found && type_of(*found) != "ByteLevel")
        return unsupported(cat(name, ": expected ByteLevel, found ", type_of(*found)));
    }
    return {};
  }

  // Sequence [Split by a pattern, ByteLevel without its own pattern].
  Result<SplitPattern> read_split() const {
    const Json* sequence = member(root_, "pre_tokenizer");
    const Json* steps = sequence ? member(*sequence, "pretokenizers") : nullptr;
    if (!steps || !steps->is_array() || steps->size() != 2 || type_of((*steps)[0]) != "Split" ||
        type_of((*steps)[1]) != "ByteLevel")
      return unsupported(
          cat("pre_tokenizer: expected Sequence [Split, ByteLevel], found ", sequence ? describe(*sequence) : "none"));
    const Json& split = (*steps)[0];
    const Json* behavior = member(split, "behavior");
    if (!behavior || *behavior != "Isolated" || flag(split, "invert", false))
      return unsupported("pre_tokenizer.Split: expected behavior Isolated, not inverted, found another");
    WP_TRY(expect_unused((*steps)[1], "pre_tokenizer.ByteLevel", "use_regex"));
    WP_TRY(expect_unused((*steps)[1], "pre_tokenizer.ByteLevel", "add_prefix_space"));
    if (!member((*steps)[1], "use_regex"))
      return unsupported("pre_tokenizer.ByteLevel.use_regex: expected false, found none, which means true");
    if (!member((*steps)[1], "add_prefix_space"))
      return unsupported("pre_tokenizer.ByteLevel.add_prefix_space: expected false, found none, which means true");
    const Json* pattern = member(split, "pattern");
    const Json* regex = pattern ? member(*pattern, "Regex") : nullptr;
    if (!regex || !regex->is_string()) return unsupported("pre_tokenizer.Split.pattern: expected a Regex, found none");
    return SplitPattern::compile(regex->get_ref<const std::string&>());
  }

  static std::string describe(const Json& sequence) {
    const Json* steps = member(sequence, "pretokenizers");
    if (!steps || !steps->is_array()) return type_of(sequence);
    std::string out = cat(type_of(sequence), " [");
    for (const Json& step : *steps) out += cat(&step == &steps->front() ? "" : ", ", type_of(step));
    return out + "]";
  }

  static Result<int32_t> id_of(const Json& value, std::string_view token) {
    if (!value.is_number_integer() || value < 0 || value > kIdMax)
      return bad(cat("token \"", token, "\": expected an id from 0 to ", kIdMax, ", found ", dump_json(value)));
    return value.get<int32_t>();
  }

  Result<void> read_tokens(const Json& model, Vocabulary& out) {
    const Json* vocab = member(model, "vocab");
    if (!vocab || !vocab->is_object() || vocab->empty())
      return bad("model.vocab: expected an object of ids, found none");
    ids_.reserve(vocab->size());
    for (const auto& [token, value] : vocab->items()) {
      WP_TRY(const int32_t id, id_of(value, token));
      WP_TRY(set_bytes(out, id, token, alphabet_.bytes(token).value_or(token)));
      ids_.emplace(token, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      std::string token;
      append_utf8(token, alphabet_.character_of[byte]);
      const auto found = ids_.find(token);
      if (found == ids_.end())
        return bad(cat("model.vocab: expected a token for every byte, found none for byte ", byte));
      out.byte_ids[byte] = found->second;
    }
    return {};
  }

  static Result<void> set_bytes(Vocabulary& out, int32_t id, std::string_view token, std::string bytes) {
    if (bytes.empty()) return bad("model.vocab: expected tokens of at least one byte, found an empty one");
    if (static_cast<size_t>(id) >= out.bytes_of_id.size()) {
      out.bytes_of_id.resize(id + 1);
      out.added_flags.resize(id + 1);
    }
    if (!out.bytes_of_id[id].empty())
      return bad(cat("token \"", token, "\": expected an id of its own, found ", id, ", which is taken"));
    out.bytes_of_id[id] = std::move(bytes);
    return {};
  }

  Result<void> read_added(Vocabulary& out) {
    const Json* added = member(root_, "added_tokens");
    if (!added) return {};
    if (!added->is_array()) return bad("added_tokens: expected an array, found something else");
    for (const Json& entry : *added) {
      const Json* content = member(entry, "content");
      const Json* id = member(entry, "id");
      if (!content || !content->is_string() || !id) return bad("added_tokens: expected content and id, found neither");
      AddedToken token;
      token.content = content->get<std::string>();
      if (token.content.empty()) continue;  // The reference ignores it too.
      WP_TRY(token.id, id_of(*id, token.content));
      token.special = flag(entry, "special", false);
      token.normalized = flag(entry, "normalized", !token.special);
      token.lstrip = flag(entry, "lstrip", false);
      token.rstrip = flag(entry, "rstrip", false);
      token.single_word = flag(entry, "single_word", false);
      WP_TRY(place(std::move(token), out));
    }
    return {};
  }

  Result<void> place(AddedToken token, Vocabulary& out) {
    const auto known = ids_.find(token.content);
    if (known != ids_.end() && known->second != token.id)
      return bad(cat("added token \"", token.content, "\": expected id ", known->second, " of the vocabulary, found ",
                     token.id));
    for (const int32_t byte_id : out.byte_ids)
      if (byte_id == token.id)
        return unsupported(cat("added token \"", token.content, "\": expected no token of a single byte, found one"));
    if (known == ids_.end()) {
      WP_TRY(set_bytes(out, token.id, token.content, token.content));
    } else {
      out.bytes_of_id[token.id] = token.content;  // As written: its characters never stand for bytes.
    }
    if (out.added_flags[token.id]) return bad(cat("added token \"", token.content, "\": expected once, found twice"));
    out.added_flags[token.id] = Vocabulary::kAdded | (token.special ? Vocabulary::kSpecial : 0);
    std::string buffer;
    if (token.normalized) {
      out.normalized_matcher.add(token, std::string(out.nfc ? to_nfc(token.content, buffer) : token.content));
    } else {
      out.raw_matcher.add(token, token.content);
    }
    out.added.push_back(std::move(token));
    return {};
  }

  // Each merge as ["a", "b"] or as "a b". A merge that would spell an added token is left out: only text that is
  // trusted, by the matcher, gives those.
  Result<void> read_merges(const Json& merges, Vocabulary& out) const {
    uint32_t rank = 0;
    for (const Json& merge : merges) {
      std::string left, right;
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      }
      const auto a = ids_.find(left), b = ids_.find(right), both = ids_.find(left + right);
      if (a == ids_.end() || b == ids_.end() || both == ids_.end())
        return bad(
            cat("model.merges[", rank, "]: expected two tokens whose join is a token, found ", dump_json(merge)));
      if (!out.added_flags[both->second]) out.merges.add(a->second, b->second, {rank, both->second});
      ++rank;
    }
    return {};
  }

  const Json& root_;
  const ByteAlphabet alphabet_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

Result<Vocabulary> read_vocabulary(std::string_view tokenizer_json) {
  auto root = parse_json(tokenizer_json, {.size_bytes_max = kFileBytesMax});
  if (!root.ok()) return bad(root.error().message);
  WP_TRY(Vocabulary out, VocabularyReader(*root).run());
  out.fingerprint = hash_text(tokenizer_json);
  return out;
}

}  // namespace wp

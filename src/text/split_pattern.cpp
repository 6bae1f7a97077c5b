#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_pattern.h"

#include <pcre2.h>

#include <utility>

#include "core/assert.h"
#include "core/cat.h"
#include "text/utf8.h"

namespace wp {
namespace {

// White_Space, as ranges inside a class, and the rest of Unicode.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
// A single-character repetition backtracks once per character: a megabyte of spaces needs a million.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr size_t kPatternBytesMax = 16 << 10;

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    if (pattern_.size() > kPatternBytesMax)
      return refuse(cat("expected at most ", kPatternBytesMax, " bytes, found ", pattern_.size()));
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        WP_TRY(escape());
      } else if (in_class_) {
        WP_TRY(class_character(c));
      } else {
        WP_TRY(character(c));
      }
    }
    return out_;
  }

 private:
  Error refuse(std::string_view what) const { return {ErrorCode::unsupported, cat("split pattern: ", what)}; }
  Error refuse_here(std::string_view construct) const {
    return refuse(cat(construct, " at byte ", at_, " is not implemented"));
  }
  bool follows(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  Result<void> escape() {
    if (at_ + 1 >= pattern_.size()) return refuse("expected a character after \\, found the end");
    const char c = pattern_[at_ + 1];
    const std::string_view letters = "dDrntfveaPpx";  // The same in both dialects.
    if (c == 's' || c == 'S') {
      const std::string_view ranges = c == 's' ? kSpaces : kNotSpaces;
      out_ += in_class_ ? std::string(ranges) : cat("[", ranges, "]");
      at_ += 2;
    } else if (c == 'v' || c == 'x' || c == 'p' || c == 'P') {
      if (c == 'v') return refuse_here("\\v");
      if (pattern_.substr(at_ + 2, 1) != "{" && c == 'x') return refuse_here("\\x without braces");
      if (pattern_.substr(at_ + 2, 2) == "{^") return refuse_here("\\p{^");
      const size_t close = pattern_.find('}', at_);
      if (pattern_.substr(at_ + 2, 1) == "{" && close == std::string_view::npos) return refuse_here("an open {");
      copy(pattern_.substr(at_ + 2, 1) == "{" ? close + 1 - at_ : 2);
    } else if (c >= 'a' && c <= 'z' ? letters.find(c) == std::string_view::npos
                                    : (c >= 'A' && c <= 'Z' && c != 'D') || (c >= '0' && c <= '9')) {
      return refuse_here(cat("\\", std::string(1, c)));
    } else {
      copy(2);
    }
    return {};
  }

  Result<void> class_character(char c) {
    if (c == '[') return refuse_here("a class inside a class");
    if (follows("&&")) return refuse_here("an intersection of classes");
    if (c == ']') in_class_ = false;
    copy(1);
    return {};
  }

  Result<void> character(char c) {
    if (c == '.' || c == '^' || c == '$') return refuse_here(std::string(1, c));
    if (c == '[') {
      in_class_ = true;
      copy(follows("[^") ? 2 : 1);
      if (follows("]")) return refuse_here("a class that begins with ]");
      return {};
    }
    if (follows("}+")) return refuse_here("a possessive {}+");
    if (follows("(*")) return refuse_here("a verb (*");
    if (follows("(?")) {
      for (const std::string_view known : {"(?:", "(?=", "(?!", "(?i:", "(?>"})
        if (follows(known)) {
          copy(known.size());
          return {};
        }
      return refuse_here("this kind of group (?");
    }
    copy(1);
    return {};
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

Result<SplitPattern> SplitPattern::compile(std::string_view pattern) {
  WP_TRY(const std::string translated, translate_pattern(pattern));
  int code_number = 0;
  size_t offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_parens_nest_limit(context, 64);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code_number, &offset, context);
  pcre2_compile_context_free(context);
  if (!code) {
    unsigned char message[160] = {};
    pcre2_get_error_message(code_number, message, sizeof message);
    return Error{ErrorCode::bad_file, cat("split pattern: ", reinterpret_cast<const char*>(message), " in ", pattern)};
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // Where there is no JIT the interpreter runs it.
  return SplitPattern(code);
}

SplitPattern::SplitPattern(SplitPattern&& other) noexcept : code_(std::exchange(other.code_, nullptr)) {}
SplitPattern& SplitPattern::operator=(SplitPattern&& other) noexcept {
  std::swap(code_, other.code_);
  return *this;
}
SplitPattern::~SplitPattern() { pcre2_code_free(code_); }

void SplitPattern::split(std::string_view text, std::vector<size_t>& ends) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_match_data* match = pcre2_match_data_create_from_pattern(code_, nullptr);
  WP_ASSERT(context && match);
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match);
  size_t piece_begin = 0;
  const auto end_piece = [&](size_t end) {
    if (end > piece_begin) ends.push_back(end);
    piece_begin = std::max(piece_begin, end);
  };
  for (size_t at = 0; at < text.size();) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int status = pcre2_match(code_, subject, text.size(), at, options, match, context);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT)
      status = pcre2_match(code_, subject, text.size(), at, options | PCRE2_NO_JIT, match, context);
    if (status < 0) break;  // No further match, or beyond the limit.
    end_piece(found[0]);
    end_piece(found[1]);
    at = found[1] > found[0] ? found[1] : found[1] + (found[1] < text.size() ? utf8_step(text, found[1]).length : 1);
  }
  end_piece(text.size());
  pcre2_match_data_free(match);
  pcre2_match_context_free(context);
}

}  // namespace wp

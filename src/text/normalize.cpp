#include "text/normalize.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <vector>

#include "core/assert.h"
#include "text/utf8.h"

namespace wp {
namespace {

// A run of combining marks longer than this is put in canonical order before ICU sees it: ICU inserts mark by mark,
// which is quadratic on a megabyte of marks that alternate between two classes. No writing has such runs.
constexpr size_t kMarksRunMax = 64;

const icu::Normalizer2& nfc() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = icu::Normalizer2::getNFCInstance(status);
  WP_ASSERT(U_SUCCESS(status) && found);  // The data is compiled into ICU's library.
  return *found;
}

// Appends the canonical decomposition of a character that decomposes into marks alone (or is one); else false.
bool append_marks(const icu::Normalizer2& normalizer, uint32_t character, std::vector<uint32_t>& marks) {
  const auto c = static_cast<UChar32>(character);
  if (c < 0x300 || normalizer.hasBoundaryBefore(c)) return false;
  icu::UnicodeString parts;
  if (!normalizer.getDecomposition(c, parts)) {
    if (u_getCombiningClass(c) == 0) return false;
    marks.push_back(character);
    return true;
  }
  if (u_getCombiningClass(parts.char32At(0)) == 0) return false;
  for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1))
    marks.push_back(static_cast<uint32_t>(parts.char32At(i)));
  return true;
}

// The same text up to canonical equivalence, with every long run of marks in canonical order. "" if it has none.
std::string order_long_runs(const icu::Normalizer2& normalizer, std::string_view text) {
  std::string out;
  std::vector<uint32_t> marks;
  size_t copied = 0, run_begin = 0, run_count = 0;
  const auto end_run = [&](size_t run_end) {
    if (run_count > kMarksRunMax) {
      std::stable_sort(marks.begin(), marks.end(), [](uint32_t a, uint32_t b) {
        return u_getCombiningClass(static_cast<UChar32>(a)) < u_getCombiningClass(static_cast<UChar32>(b));
      });
      out += text.substr(copied, run_begin - copied);
      for (const uint32_t mark : marks) append_utf8(out, mark);
      copied = run_end;
    }
    marks.clear();
    run_count = 0;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (append_marks(normalizer, step.character, marks)) {
      if (run_count++ == 0) run_begin = at;
    } else {
      end_run(at);
    }
    at += step.length;
  }
  end_run(text.size());
  if (copied > 0) out += text.substr(copied);
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& out) {
  WP_ASSERT(text.size() <= INT32_MAX);  // ICU counts so; a request body is far smaller.
  if (is_ascii(text)) return text;
  const icu::Normalizer2& normalizer = nfc();
  // First of all, as ICU's check of what is normal already is quadratic on such runs too.
  const std::string ordered = order_long_runs(normalizer, text);
  const std::string_view source = ordered.empty() ? text : std::string_view(ordered);
  const icu::StringPiece piece(source.data(), static_cast<int32_t>(source.size()));
  UErrorCode status = U_ZERO_ERROR;
  if (ordered.empty() && normalizer.isNormalizedUTF8(piece, status) && U_SUCCESS(status)) return text;
  out.clear();
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(source.size()));
  status = U_ZERO_ERROR;
  normalizer.normalizeUTF8(0, piece, sink, nullptr, status);
  WP_ASSERT(U_SUCCESS(status));
  return out;
}

}  // namespace wp

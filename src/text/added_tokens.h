// Added tokens: strings that stand for one id wherever trusted text contains them, before any other splitting. Const
// once filled; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wp {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false, normalized = false, lstrip = false, rstrip = false, single_word = false;
};

struct TextSegment {
  std::string_view text;
  int32_t id;  // Of the added token, or -1 for the text between.
};

// Finds a set of added tokens in a text: the leftmost, the longest of those that begin there.
class AddedTokenMatcher {
 public:
  // `pattern` is what to look for: the token's content, normalized where it says so.
  void add(const AddedToken& token, std::string pattern);
  // Appends the segments of `text`. lstrip and rstrip tokens take the white space beside them.
  void split(std::string_view text, std::vector<TextSegment>& segments) const;

 private:
  struct Entry {
    std::string pattern;
    int32_t id;
    bool lstrip, rstrip, single_word;
  };
  const Entry* find_at(std::string_view text, size_t at) const;

  std::array<std::vector<Entry>, 256> by_first_byte_;  // Longest first.
};

}  // namespace wp

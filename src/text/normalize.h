// Unicode NFC of valid UTF-8, through ICU, in time linear in the text whatever the text. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace wp {

// `text` itself where it is in NFC already (then `out` is untouched), else `out`, which holds the normal form.
std::string_view to_nfc(std::string_view text, std::string& out);

}  // namespace wp

// The page at /: web/, made one string at build time (web/embed.cmake), and the digests of its style and its script.
// Constants of the program; any thread.
#pragma once

namespace wp {

extern const char* const kPageHtml;
extern const char* const kPageStyleDigest;  // "sha256-...", as a Content-Security-Policy takes it.
extern const char* const kPageScriptDigest;

}  // namespace wp

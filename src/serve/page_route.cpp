// GET /: the page. The same bytes for everybody, so that it asks for no key: a browser that opens an address has none
// to send yet, and what the page shows it asks for over routes that want one.
#include "serve/page.h"
#include "serve/routes.h"

namespace wp {

void page(const HttpRequest&, HttpResponse& response, ServerState&) {
  // Nothing runs or is fetched but what the page itself holds and this server answers; nobody frames it.
  response.add_header("content-security-policy",
                      cat("default-src 'none'; style-src '", kPageStyleDigest, "'; script-src '", kPageScriptDigest,
                          "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                          "frame-ancestors 'none'"));
  response.add_header("x-content-type-options", "nosniff");
  response.add_header("referrer-policy", "no-referrer");
  response.add_header("cross-origin-opener-policy", "same-origin");
  response.add_header("cross-origin-resource-policy", "same-origin");
  response.add_header("cache-control", "no-cache");
  response.send(200, "text/html; charset=utf-8", kPageHtml);
}

}  // namespace wp

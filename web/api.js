// Requests to the server this page came from, and to no other.

const kKeyName = "warmpath.key";
const keyWanted = new EventTarget();  // "wanted": a request was refused for want of a key.

// What the server refused, or what kept the request from it.
class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function headers(more = {}) {
  const key = remembered("sessionStorage", kKeyName);
  return key ? {authorization: `Bearer ${key}`, ...more} : more;
}

async function errorOf(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch { /* Not of this server's making. */
  }
  if (response.status === 401) keyWanted.dispatchEvent(new Event("wanted"));
  return new ApiError(error?.message ?? `the server answered ${response.status}`, response.status, error?.code ?? null);
}

async function reach(path, options) {
  try {
    return await fetch(path, {cache: "no-store", credentials: "omit", ...options});
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new ApiError("The server cannot be reached.", 0, "unreachable");
  }
}

async function getJson(path) {
  const response = await reach(path, {headers: headers()});
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

// The data of an event stream, one object at a time. Throws what the server says went wrong on the way, and when the
// stream ends without having said that it is complete.
async function* postForEvents(path, body, more, signal) {
  const response = await reach(path, {
    method: "POST",
    headers: headers({"content-type": "application/json", ...more}),
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (failure) {
      if (failure.name === "AbortError") throw failure;
      throw new ApiError("The connection to the server was lost.", 0, "connection_lost");
    }
    if (piece.done)
      throw new ApiError("The answer ended early: the connection to the server was lost.", 0, "connection_lost");
    buffer += piece.value;
    const lines = buffer.split("\n");
    buffer = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const text = line.slice("data: ".length);
      if (text === "[DONE]") return;
      const data = JSON.parse(text);
      if (data.error) throw new ApiError(data.error.message, 200, data.error.code);
      yield data;
    }
  }
}

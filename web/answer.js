// One message of the conversation as it is shown: the user's, an answer while it is generated and after, an error.

// Why a prompt was not reused as far as it might have been: timings.miss_reason in plain words.
const kMissReasons = {
  bypass: "The cache was not asked: it is switched off for this server or this request.",
  too_short: "Prompts this short are not kept; computing them takes less than keeping them.",
  model_changed: "What was kept was computed by another model or build.",
  adapter_changed: "What was kept was computed under another adapter.",
  salt: "The first request of its cache domain: domains share nothing.",
  tier_fail: "What was kept could not be read back, so it was computed again.",
  incomplete: "The state was still being written when this request came.",
  evicted: "It was known once and had to make room since.",
  no_anchor: "These tokens are known, but no state was kept close to where they end.",
  diverged: "This prompt leaves the known conversation earlier than its last turn did: its history changed.",
  cold: "Nothing of this prompt was known.",
};

const kSources = {
  device: "from device memory",
  ram: "from host memory",
  disk: "from disk"
};

function messageOf(kind, label, ...children) {
  return el("article", {class: `message ${kind}`, "aria-label": label}, ...children);
}

function userMessage(text, onEdit) {
  const node = messageOf(
      "user", "You", el("div", {class: "bubble"}, text),
      el("div", {class: "actions"}, el("button", {type: "button", class: "link", click: () => onEdit(node)}, "Edit")));
  return node;
}

function toolMessage(name, text) {
  return messageOf(
      "tool", `Result of ${name}`,
      el("details", {class: "fold"}, el("summary", {}, "Result of ", el("code", {}, name)),
         el("pre", {tabindex: "0"}, text)));
}

function errorMessage(error, onRetry) {
  const detail =
      [error.code, error.status > 0 && error.status !== 200 ? `HTTP ${error.status}` : null].filter(Boolean).join(", ");
  return messageOf(
      "error", "Error",
      el("div", {role: "alert"}, el("strong", {}, "No answer. "), error.message,
         detail && el("span", {class: "hint"}, ` (${detail})`)),
      el("button", {type: "button", class: "link", click: onRetry}, "Try again"));
}

// An answer: what has come so far, as the API's message and as elements.
class Answer {
  constructor() {
    this.content = "";
    this.thought = "";
    this.calls = [];
    this.startedMs = performance.now();
    this.thoughtMs = 0;
    this.progress = null;
    this.body = el("div", {class: "markdown"});
    this.wait =
        el("p", {class: "wait"}, el("span", {class: "pulse", "aria-hidden": "true"}), el("span", {}, "Waiting"));
    this.foot = el("footer", {class: "foot"});
    this.node = messageOf("answer", "Answer", this.wait, this.body, this.foot);
    this.node.setAttribute("aria-busy", "true");
    this.due = false;
  }

  message() {
    const message = {role: "assistant", content: this.content};
    if (this.thought) message.reasoning_content = this.thought;
    if (this.calls.length > 0)
      message.tool_calls =
          this.calls.map(({id, name, text}) => ({id, type: "function", function: {name, arguments: text}}));
    return message;
  }

  take(chunk) {
    if (chunk.prompt_progress) this.progress = chunk.prompt_progress;
    if (chunk.timings) this.timings = chunk.timings;
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    const delta = choice?.delta ?? {};
    if (delta.reasoning_content) this.thought += delta.reasoning_content;
    if (delta.content) this.content += delta.content;
    if ((delta.content || delta.tool_calls) && this.thought && !this.thoughtMs)
      this.thoughtMs = performance.now() - this.startedMs;
    for (const part of delta.tool_calls ?? []) {
      const call = (this.calls[part.index] ??= {id: "", name: "", text: ""});
      call.id ||= part.id ?? "";
      call.name += part.function?.name ?? "";
      call.text += part.function?.arguments ?? "";
    }
    this.drawSoon();
  }

  drawSoon() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.draw();
    });
  }

  draw() {
    const begun = this.content || this.thought || this.calls.length > 0;
    this.wait.hidden = Boolean(begun || this.ended);
    if (this.progress && !begun) this.wait.lastChild.textContent = this.progressText();
    if (this.thought) this.drawThought();
    drawMarkdown(this.body, this.content.trim());
    this.calls.forEach((call) => this.drawCall(call));
    this.onDraw?.();
  }

  progressText() {
    const {total, processed} = this.progress;
    return processed < total ? `Reading the prompt: ${formatCount(processed)} of ${plural(total, "token")}` :
                               "Reading the prompt";
  }

  drawThought() {
    if (!this.thoughtNode) {
      this.thoughtText = el("div", {class: "markdown"});
      this.thoughtNode = el("details", {class: "fold thought"}, el("summary", {}), this.thoughtText);
      this.body.before(this.thoughtNode);
    }
    const ms = this.thoughtMs || (this.ended ? this.endedMs - this.startedMs : 0);
    const label = ms > 0 ? `Thought for ${formatMs(ms)}` : "Thinking";
    this.thoughtNode.classList.toggle("busy", ms === 0);
    const summary = this.thoughtNode.firstChild;
    if (summary.textContent !== label) summary.textContent = label;
    drawMarkdown(this.thoughtText, this.thought.trim());
  }

  drawCall(call) {
    if (!call.node) {
      call.title = el("code", {});
      call.brief = el("span", {class: "brief"});
      call.code = el("code", {});
      call.node =
          el("details", {class: "fold call"}, el("summary", {}, "Calls ", call.title, " ", call.brief),
             el("pre", {tabindex: "0"}, call.code));
      this.foot.before(call.node);
    }
    call.title.textContent = call.name;
    call.brief.textContent = briefOf(call.text);
    call.code.textContent = prettyOf(call.text);
  }

  // It is over: `note` says how, where it did not end by itself.
  end(note) {
    this.ended = true;
    this.endedMs = performance.now();
    this.calls = this.calls.filter((call) => call.name);
    this.draw();
    this.node.setAttribute("aria-busy", "false");
    if (!note && this.finish === "length") note = "Cut: the most tokens were reached.";
    if (!note && !this.content && this.calls.length === 0) note = "An empty answer.";
    if (note) this.foot.append(el("p", {class: "hint"}, note));
    if (this.usage && this.timings)
      this.foot.append(reuseOf(this.usage, this.timings));
    else if (this.progress)
      this.foot.append(reuseBar(this.progress.cache, this.progress.total));
  }
}

const prettyOf = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // Not whole yet.
  }
};

const briefOf = (text) => {
  try {
    return Object.values(JSON.parse(text))
        .map((value) => (typeof value === "string" ? value : JSON.stringify(value)))
        .join(", ")
        .slice(0, 80);
  } catch {
    return "";
  }
};

function reuseBar(cached, total) {
  const share = total > 0 ? cached / total : 0;
  const warm = el("span", {class: "warm"});
  warm.style.width = `${100 * share}%`;
  return el(
      "p", {class: "reuse"},
      el("span", {class: "bar", role: "img", "aria-label": `${Math.round(100 * share)} % reused`}, warm),
      el("span", {}, `${formatCount(cached)} of ${plural(total, "prompt token")} reused`));
}

// How much of the prompt was reused and why not more, and where the time went.
function reuseOf(usage, timings) {
  const cached = usage.prompt_tokens_details.cached_tokens;
  const computed = usage.prompt_tokens - cached;
  const line = reuseBar(cached, usage.prompt_tokens);
  const source = kSources[timings.cache_source];
  if (source) line.lastChild.append(` ${source}`);
  line.append(el("span", {class: "figure"}, `${formatMs(timings.ttft_ms)} to first token`));
  if (timings.predicted_per_second > 0)
    line.append(el("span", {class: "figure"}, `${formatCount(Math.round(timings.predicted_per_second))} tokens/s`));
  const reason = timings.miss_reason ?
      `${plural(computed, "token")} computed. ${kMissReasons[timings.miss_reason] ?? timings.miss_reason}` :
      `${plural(computed, "token")} computed: what was new, from the last state kept.`;
  const rows = [
    ["Prompt tokens", formatCount(usage.prompt_tokens)], ["Reused", formatCount(cached)],
    ["Computed", formatCount(computed)], ["Generated", formatCount(usage.completion_tokens)],
    ["Miss reason", timings.miss_reason ?? "none"], ["Waited in the queue", formatMs(timings.queue_ms)],
    ["Restored in", formatMs(timings.restore_ms)], ["Prompt computed in", formatMs(timings.prompt_ms)],
    ["Time to first token", formatMs(timings.ttft_ms)], ["Generated in", formatMs(timings.predicted_ms)]
  ];
  return el(
      "div", {class: "account"}, line,
      el("details", {class: "why"}, el("summary", {}, reason),
         el("dl", {}, ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))))));
}

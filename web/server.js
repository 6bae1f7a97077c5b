// The live view of the server: asked for each second while somebody can see it.

const kPollMs = 1000;

const kPoolNames = {
  weights: "Weights",
  pages: "Pages of tokens",
  anchors: "Anchors",
  sequences: "Running sequences",
  scratch: "Scratch",
  ram: "Host memory tier"
};
const kClassNames = {
  S: "system block",
  T: "end of a turn",
  U: "start of a message",
  B: "branch",
  A: "end of an answer",
  L: "rung of a long prompt"
};

const live = {
  drawn: {},
  timer: 0,
  asking: false
};

// Draws a part anew where what it is made from has changed.
function redraw(id, data, draw) {
  const key = JSON.stringify(data);
  if (live.drawn[id] === key) return;
  live.drawn[id] = key;
  const focused = byId(id).contains(document.activeElement);
  byId(id).replaceChildren(...[draw(data)].flat().filter(Boolean));
  if (focused) byId(id).querySelector("summary")?.focus();
}

function section(id, title, hint) {
  return el(
      "section", {"aria-labelledby": `${id}-title`}, el("h2", {id: `${id}-title`}, title),
      hint && el("p", {class: "hint"}, hint), el("div", {id}));
}

function drawServer() {
  byId("server").append(
      el("p", {id: "server-problem", class: "hint", role: "status", hidden: true}), section("requests", "Requests"),
      section("times", "Time to first token", "By the length of the prompt, of the last requests."),
      section("memory", "Memory"),
      section(
          "tree", "Prefix tree",
          "Runs of tokens that are kept. Where a state is kept too, an anchor, a prompt can go on."));
}

function meter(share, kind, label) {
  const node = el("span", {class: `meter ${kind}`, role: "img", "aria-label": label}, el("span"));
  node.firstChild.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return node;
}

const figure = (value, label) => el("div", {}, el("dd", {}, value), el("dt", {}, label));

function requestsPart({requests, tokens, slots}) {
  const share = tokens.prompt > 0 ? `${Math.round(100 * tokens.reused / tokens.prompt)} %` : "–";
  return [
    el("dl", {class: "figures"}, figure(formatCount(requests.running), `running of ${requests.slots}`),
       figure(formatCount(requests.waiting), "waiting"), figure(share, "of prompt tokens reused"),
       figure(formatCount(tokens.generated), "tokens generated")),
    el("ul", {class: "slots"}, ...slots.map(slotRow)),
  ];
}

function slotRow(slot) {
  const {n_prompt_tokens: prompt, n_prompt_tokens_cache: cached, next_token: {n_decoded: decoded}} = slot;
  const label = {idle: slot.id_task > 0 ? "idle" : "unused", prefill: "reads", decode: "writes"}[slot.state] ??
      slot.state;
  const text = slot.id_task > 0 ?
      `${plural(prompt, "token")}, ${formatCount(cached)} reused, ${formatCount(decoded)} written` :
      "";
  return el(
      "li", {class: slot.is_processing ? "busy" : null}, el("span", {class: "number"}, String(slot.id)),
      el("span", {class: "what"}, label), el("span", {class: "hint"}, text),
      slot.is_processing &&
          meter(prompt > 0 ? cached / prompt : 0, "split", `${formatCount(cached)} of ${formatCount(prompt)} reused`));
}

function timesPart(recent) {
  if (recent.length === 0) return el("p", {class: "nothing"}, "No request has been answered yet.");
  const rows = [...recent].reverse().slice(0, 20).map(
      (request) => el(
          "tr", {}, el("td", {}, formatCount(request.prompt_tokens)), el("td", {}, formatCount(request.cached_tokens)),
          el("td", {}, formatMs(request.ttft_ms)), el("td", {}, request.miss_reason ?? "none")));
  const open = byId("times").querySelector("details")?.open;
  return [
    legendOf(recent), chartOf(recent),
    el("details", {class: "why", open}, el("summary", {}, "As a table"),
       el("div", {class: "wide"},
          el("table", {},
             el("thead", {},
                el("tr", {}, ...["Prompt", "Reused", "First token", "Miss reason"].map((name) => el("th", {}, name)))),
             el("tbody", {}, rows))))
  ];
}

function memoryPart({pools, host_available_bytes: available, disk_cache_bytes: disk}) {
  const rows = pools.map(
      ({pool, bytes, used_bytes: used}) => el(
          "li", {}, el("span", {}, kPoolNames[pool] ?? pool),
          el("span", {class: "hint"},
             used === bytes ? formatBytes(bytes) : `${formatBytes(used)} of ${formatBytes(bytes)}`),
          meter(
              bytes > 0 ? used / bytes : 0, pool === "anchors" || pool === "pages" || pool === "ram" ? "warm" : "plain",
              `${Math.round(bytes > 0 ? 100 * used / bytes : 0)} % in use`)));
  const rest = [
    available >= 0 && `${formatBytes(available)} free on the host`, disk > 0 && `${formatBytes(disk)} on disk`
  ].filter(Boolean);
  return [el("ul", {class: "pools"}, rows), rest.length > 0 && el("p", {class: "hint"}, rest.join(", "))];
}

function treePart({runs, whole}) {
  if (runs.length === 0) return el("p", {class: "nothing"}, "Nothing is kept yet. Prompts of 256 tokens and more are.");
  const worths = runs.map((run) => worthOf(run.anchor));
  const most = Math.max(...worths, 0);
  const children = runs.map(() => []);
  const roots = [];
  runs.forEach((run, i) => (run.parent < 0 ? roots : children[run.parent]).push(i));
  // A run that alone goes on from the one before stands below it: only a branch is indented.
  const path = (at) => {
    const rows = [];
    for (;;) {
      rows.push(runRow(runs[at], most > 0 ? worths[at] / most : 0));
      if (children[at].length !== 1) break;
      [at] = children[at];
    }
    return el("li", {}, rows, children[at].length > 0 && el("ul", {}, ...children[at].map(path)));
  };
  return [
    el("ul", {class: "tree"}, ...roots.map(path)),
    !whole && el("p", {class: "hint"}, "There is more: only a part is shown.")
  ];
}

// What an anchor is expected to save: the order of eviction goes by the same, per byte.
const worthOf = (anchor) => (anchor ? anchor.expected_uses * anchor.saves_tokens : 0);

function runRow(run, share) {
  const {anchor} = run;
  const tags = [
    run.readers > 0 && "in use", anchor?.held && "held", anchor?.superseded && "first to go",
    anchor?.probation && "on probation"
  ];
  const head = [
    el("span", {class: anchor ? "bead" : "bead bare", "aria-hidden": "true"}, anchor?.class ?? ""),
    el("span", {class: "tokens"}, `${formatCount(run.begin)} – ${formatCount(run.end)}`),
    el("span", {class: "label"}, anchor ? kClassNames[anchor.class] ?? "anchor" : "no anchor"),
    ...tags.filter(Boolean).map((tag) => el("span", {class: `tag ${tag === "in use" ? "read" : ""}`}, tag))
  ];
  if (!anchor) return el("div", {class: "run"}, head);
  const time = anchor.saves_ms > 0 ? `, ${formatMs(anchor.saves_ms)}` : "";
  return el(
      "div", {class: "run"}, head,
      el("span", {class: "hint"},
         `saves ${plural(anchor.saves_tokens, "token")}${time} · ${anchor.expected_uses.toFixed(2)} uses ahead`),
      meter(share, "warm", `worth ${Math.round(100 * share)} % of the most valuable`));
}

async function look() {
  if (live.asking) return;
  live.asking = true;
  try {
    const [status, slots, tree] = await Promise.all([getJson("/status"), getJson("/slots"), getJson("/cache/tree")]);
    redraw("requests", {requests: status.requests, tokens: status.tokens, slots}, requestsPart);
    redraw("times", status.recent, timesPart);
    redraw("memory", status.memory, memoryPart);
    if (!tree.busy) redraw("tree", tree, treePart);
    byId("server-problem").hidden = true;
    showState(status.state === "draining" ? "shutting down" : "ready", status.state === "draining" ? "wait" : "good");
  } catch (error) {
    byId("server-problem").textContent = error.message;
    byId("server-problem").hidden = false;
    if (error.status === 0) showState("not reached", "bad");
  }
  live.asking = false;
}

// Nobody is asked while nobody looks.
function seen() {
  const shown = document.visibilityState === "visible" && byId("server").checkVisibility();
  return shown && live.ready;
}

function startServer() {
  drawServer();
  setInterval(() => {
    if (seen()) look();
  }, kPollMs);
  document.addEventListener("visibilitychange", () => {
    if (seen()) look();
  });
  afterAnswer = () => {
    if (seen()) look();
  };
}

// Time to first token against the length of the prompt, cold and warm: one mark for each of the last requests, in SVG.

const kChart = {
  width: 440,
  height: 210,
  left: 46,
  right: 10,
  top: 10,
  bottom: 30
};

// The logarithms between which all of the values lie: from a power of ten, over at least one decade.
function decades(values) {
  const low = Math.floor(Math.log10(Math.min(...values)));
  return {low, high: Math.max(low + 1, Math.log10(1.3 * Math.max(...values)))};
}

// Round numbers from 0 to just above `most`, four or five of them.
function roundTicks(most) {
  const step = 10 ** Math.floor(Math.log10(most));
  const each = [0.25, 0.5, 1, 2].map((part) => part * step).find((size) => most / size <= 5) ?? 2 * step;
  return Array.from({length: Math.ceil(most / each) + 1}, (_, i) => i * each);
}

const isWarm = (request) => request.cached_tokens > 0;

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function chartOf(requests) {
  const {width, height, left, right, top, bottom} = kChart;
  const times = requests.map((request) => Math.max(0.1, request.ttft_ms));
  const {low, high} = decades(times);
  const ticks = roundTicks(Math.max(64, ...requests.map((request) => request.prompt_tokens)));
  const x = (tokens) => left + (width - left - right) * tokens / ticks.at(-1);
  const y = (ms) => top + (height - top - bottom) * (high - Math.log10(ms)) / (high - low);
  const node =
      svg("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": chartLabel(requests)});
  for (let power = low; power <= high; ++power) {
    const at = y(10 ** power);
    node.append(
        svg("line", {x1: left, x2: width - right, y1: at, y2: at, class: "grid"}),
        svg("text", {x: left - 8, y: at + 4, "text-anchor": "end"},
            power >= 3 ? `${10 ** (power - 3)} s` : `${10 ** power} ms`));
  }
  for (const tick of ticks)
    node.append(
        svg("text", {x: x(tick), y: height - bottom + 18, "text-anchor": tick === ticks.at(-1) ? "end" : "middle"},
            shortCount(tick)));
  // The newest on top, and fully drawn.
  requests.forEach((request, i) => {
    const age = (requests.length - 1 - i) / Math.max(1, requests.length);
    const mark =
        svg("circle", {cx: x(request.prompt_tokens), cy: y(times[i]), r: 4.5, class: isWarm(request) ? "warm" : "cold"},
            svg("title", {},
                `${plural(request.prompt_tokens, "token")}, ${formatCount(request.cached_tokens)} reused: ${
                    formatMs(request.ttft_ms)}`));
    mark.style.opacity = String(0.9 - 0.5 * age);
    node.append(mark);
  });
  return node;
}

const shortCount = (count) => (count >= 1000 ? `${+ (count / 1000).toFixed(1)}k` : String(Math.round(count)));

function chartLabel(requests) {
  const parts = [["warm", requests.filter(isWarm)], ["cold", requests.filter((request) => !isWarm(request))]]
                    .filter(([, list]) => list.length > 0)
                    .map(
                        ([kind, list]) => `${plural(list.length, `${kind} request`)}, median ${
                            formatMs(median(list.map((request) => request.ttft_ms)))}`);
  return `Time to first token by prompt length: ${parts.join("; ")}`;
}

// Cold and warm beside each other: the medians over prompts of 256 tokens and more, which the cache keeps.
function legendOf(requests) {
  const kept = requests.filter((request) => request.prompt_tokens >= 256);
  const of = (list) => (list.length > 0 ? formatMs(median(list.map((request) => request.ttft_ms))) : "–");
  const entry = (kind, label, list) =>
      el("div", {}, el("dt", {}, el("span", {class: `dot ${kind}`}), label), el("dd", {}, of(list)));
  return el(
      "dl", {class: "legend"}, entry("cold", "cold, median", kept.filter((request) => !isWarm(request))),
      entry("warm", "warm, median", kept.filter(isWarm)));
}

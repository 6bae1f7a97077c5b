// Markdown as models write it, to elements: built node by node, so that text stays text whatever it says. No image is
// loaded and no HTML is read. A text that grows is drawn again from its first changed block.

const kDepthMax = 6;  // Lists and quotes in each other, emphasis in emphasis.

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const kRule = /^ {0,3}([-*_])( *\1){2,} *$/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const kTableLine = /^ *\|?( *:?-+:? *\|)+ *:?-* *:?\|? *$/;

// The blocks of a text: {kind, lines, ...}. `lines` are what the block was made of.
function splitBlocks(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") {
      ++at;
      continue;
    }
    const block = fenced(lines, at) ?? oneLine(lines[at]) ?? quoted(lines, at) ?? listed(lines, at) ??
        tabled(lines, at) ?? paragraph(lines, at);
    block.source = `${block.kind}\n${lines.slice(at, at + block.count).join("\n")}`;
    blocks.push(block);
    at += block.count;
  }
  return blocks;
}

function fenced(lines, at) {
  const open = kFence.exec(lines[at]);
  if (!open) return null;
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], open[1])) ++end;
  return {
    kind: "code",
    count: Math.min(end + 1, lines.length) - at,
    language: open[2].trim().split(/\s/)[0],
    text: lines.slice(at + 1, end).join("\n")
  };
}

const closes = (line, fence) => line.trim().startsWith(fence) && line.trim().replaceAll(fence[0], "") === "";

function oneLine(line) {
  const heading = kHeading.exec(line);
  if (heading) return {kind: "heading", count: 1, level: heading[1].length, text: heading[2]};
  return kRule.test(line) ? {kind: "rule", count: 1} : null;
}

function quoted(lines, at) {
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) ++end;
  if (end === at) return null;
  return {
    kind: "quote",
    count: end - at,
    text: lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n")
  };
}

function listed(lines, at) {
  const first = kItem.exec(lines[at]);
  if (!first) return null;
  const ordered = /\d/.test(first[2]);
  const indent = first[1].length;
  const items = [];
  let end = at;
  for (; end < lines.length; ++end) {
    const item = kItem.exec(lines[end]);
    if (item && item[1].length <= indent + 1 && /\d/.test(item[2]) === ordered) {
      items.push([item[4]]);
      continue;
    }
    const blank = lines[end].trim() === "";
    const inside = /^ {2,}|^\t/.test(lines[end]);
    if (blank && end + 1 < lines.length && (/^ {2,}/.test(lines[end + 1]) || kItem.test(lines[end + 1]))) {
      items.at(-1).push("");
      continue;
    }
    if (blank || (!inside && (item || oneLine(lines[end]) || kFence.test(lines[end])))) break;
    items.at(-1).push(inside ? lines[end].replace(/^\t| {1,4}/, "") : lines[end]);
  }
  return {
    kind: "list",
    count: end - at,
    ordered,
    start: parseInt(first[2], 10) || 1,
    items: items.map((item) => item.join("\n"))
  };
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function tabled(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length || !kTableLine.test(lines[at + 1])) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") ++end;
  return {kind: "table", count: end - at, head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells)};
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !kFence.test(lines[end]) && !oneLine(lines[end]) &&
         !/^ {0,3}>/.test(lines[end]) && !kItem.test(lines[end]))
    ++end;
  return {kind: "paragraph", count: end - at, text: lines.slice(at, end).join("\n")};
}

function drawBlock(block, depth) {
  switch (block.kind) {
    case "code":
      return drawCode(block);
    case "heading":
      return el(`h${Math.min(block.level + 2, 6)}`, {}, ...inline(block.text));
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, ...nested(block.text, depth));
    case "list":
      return el(
          block.ordered ? "ol" : "ul", {start: block.ordered && block.start !== 1 && block.start},
          ...block.items.map((item) => el("li", {}, ...tight(nested(item, depth)))));
    case "table":
      return drawTable(block);
    default:
      return el("p", {}, ...inline(block.text));
  }
}

const nested = (text, depth) =>
    depth >= kDepthMax ? [el("p", {}, text)] : splitBlocks(text).map((block) => drawBlock(block, depth + 1));

// The first paragraph of an item is the item's own text.
const tight = (nodes) => (nodes[0]?.tagName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes);

function drawCode(block) {
  const copy = el("button", {type: "button", class: "link", click: () => copyText(block.text, copy)}, "Copy");
  return el(
      "figure", {class: "code"}, el("figcaption", {}, el("span", {}, block.language || "text"), copy),
      el("pre", {tabindex: "0"}, el("code", {}, block.text)));
}

function drawTable(block) {
  const row = (tag) => (texts) => el("tr", {}, ...texts.map((text) => el(tag, {}, ...inline(text))));
  return el(
      "div", {class: "wide", tabindex: "0"},
      el("table", {}, el("thead", {}, row("th")(block.head)), el("tbody", {}, ...block.rows.map(row("td")))));
}

const kMarks = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const kAddress = /^https?:\/\/[^\s<>()[\]"'`]+[^\s<>()[\]"'`.,;:!?]/;
const kLink = /^\[([^\][]{1,500})\]\(\s*<?([^\s()<>]{1,2000})>?(?:\s+"[^"]{0,500}")?\s*\)/;

const kSpecial = /[\n\\`*_~![<]|https?:\/\//g;

// The nodes of a line or several. A mark that is looked for to the end of the text in vain is known to be missing from
// then on, so that a text of nothing but marks takes no longer than another.
class Inline {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.nodes = [];
    this.plain = "";
    this.missing = new Set();
  }

  read() {
    const {text} = this;
    for (let at = 0; at < text.length;) {
      kSpecial.lastIndex = at;
      const next = kSpecial.exec(text)?.index ?? text.length;
      this.plain += text.slice(at, next);
      if (next === text.length) break;
      const taken = this.special(next);
      if (taken === 0) this.plain += text[next];
      at = next + Math.max(taken, 1);
    }
    this.flush();
    return this.nodes;
  }

  // How many characters at `at` have become a node; 0: they are plain.
  special(at) {
    switch (this.text[at]) {
      case "\n":
        return this.put(el("br"), 1);
      case "\\":
        return this.escaped(at);
      case "`":
        return this.code(at);
      case "*":
      case "_":
      case "~":
        return this.depth < kDepthMax ? this.emphasis(at) : 0;
      default:
        return this.link(at);
    }
  }

  flush() {
    if (this.plain) this.nodes.push(this.plain);
    this.plain = "";
  }

  put(node, length) {
    this.flush();
    this.nodes.push(node);
    return length;
  }

  escaped(at) {
    const next = this.text[at + 1] ?? "";
    if (!/[!-/:-@[-`{-~]/.test(next)) return 0;
    this.plain += next;
    return 2;
  }

  code(at) {
    const {text, missing} = this;
    const mark = /^`+/.exec(text.slice(at, at + 16))[0];
    const end = missing.has(mark) ? -1 : text.indexOf(mark, at + mark.length);
    if (end < 0) {
      missing.add(mark);
      this.plain += mark;
      return mark.length;
    }
    return this.put(
        el("code", {}, text.slice(at + mark.length, end).replace(/^ (.+) $/s, "$1")), end + mark.length - at);
  }

  emphasis(at) {
    const {text, missing} = this;
    for (const [mark, tag] of kMarks) {
      if (!text.startsWith(mark, at) || missing.has(mark)) continue;
      if (mark[0] === "_" && /\w/.test(text[at - 1] ?? "")) continue;  // snake_case
      if (/^(\s|)$/.test(text[at + mark.length] ?? "")) continue;
      const begin = at + mark.length, end = this.closing(mark, begin);
      if (end > begin)
        return this.put(el(tag, {}, ...inline(text.slice(begin, end), this.depth + 1)), end + mark.length - at);
    }
    return 0;
  }

  closing(mark, from) {
    const {text} = this;
    for (let end = text.indexOf(mark, from); end >= 0; end = text.indexOf(mark, end + mark.length)) {
      const after = text[end + mark.length] ?? "";
      if (mark.length === 1 && after === mark)
        ++end;  // Part of a longer mark.
      else if (!/\s/.test(text[end - 1]) && !(mark[0] === "_" && /\w/.test(after)))
        return end;
    }
    this.missing.add(mark);
    return -1;
  }

  // [text](address), ![text](address), <address> and the bare address.
  link(at) {
    const rest = this.text.slice(at, at + 2600);
    const skip = rest[0] === "!" || rest[0] === "<" ? 1 : 0;
    const named = rest[0] === "<" ? null : kLink.exec(rest.slice(skip));
    if (named) {
      const address = safeAddress(named[2]);
      return this.put(address ? anchor(address, inline(named[1], kDepthMax)) : named[1], named[0].length + skip);
    }
    const bare = rest[0] === "!" || rest[0] === "[" ? null : kAddress.exec(rest.slice(skip));
    if (!bare || (skip && rest[1 + bare[0].length] !== ">")) return 0;
    return this.put(anchor(bare[0], [bare[0]]), bare[0].length + 2 * skip);
  }
}

const inline = (text, depth = 0) => new Inline(text, depth).read();

// Whoever follows a link goes there by a click of their own, and takes nothing along.
const anchor = (address, children) =>
    el("a", {href: address, target: "_blank", rel: "noopener noreferrer"}, ...children);

function safeAddress(text) {
  try {
    const address = new URL(text);
    return ["http:", "https:", "mailto:"].includes(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}

// Draws `text` in `container`; blocks that are as they were keep their elements.
function drawMarkdown(container, text) {
  const blocks = splitBlocks(text);
  const drawn = container.drawnBlocks ?? [];
  let same = 0;
  while (same < blocks.length && same < drawn.length && blocks[same].source === drawn[same]) ++same;
  while (container.children.length > same) container.lastElementChild.remove();
  for (const block of blocks.slice(same)) container.append(drawBlock(block, 0));
  container.drawnBlocks = blocks.map((block) => block.source);
}

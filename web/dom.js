// Making elements, writing numbers, the theme. Text enters the page as text nodes alone; nothing here parses HTML.

const byId = (id) => document.getElementById(id);

// el("p", {class: "hint"}, "text", child): an element. A function becomes a listener; false, null and undefined are
// left out.
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function")
      node.addEventListener(name, value);
    else
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const numbers = new Intl.NumberFormat("en-US");
const formatCount = (value) => numbers.format(value);

function formatMs(ms) {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 10 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
}

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; ++at) bytes /= 1024;
  return `${at === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[at]}`;
}

const plural = (count, one, many = `${one}s`) => `${formatCount(count)} ${count === 1 ? one : many}`;

// What a screen reader says; shown nowhere.
function announce(text) {
  byId("announcer").textContent = text;
}

async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => {
    button.textContent = before;
  }, 1500);
}

// A store that a browser may refuse (private windows, blocked cookies): the page works without.
function remembered(store, name, value) {
  try {
    if (value === undefined) return window[store].getItem(name);
    if (value === null)
      window[store].removeItem(name);
    else
      window[store].setItem(name, value);
  } catch { /* Not remembered. */
  }
  return value ?? null;
}

const kThemes = {
  auto: "Auto",
  light: "Light",
  dark: "Dark"
};

function setTheme(theme) {
  const known = kThemes[theme] ? theme : "auto";
  if (known === "auto")
    delete document.documentElement.dataset.theme;
  else
    document.documentElement.dataset.theme = known;
  const button = byId("theme");
  button.textContent = kThemes[known];
  button.setAttribute("aria-label", `Theme: ${kThemes[known].toLowerCase()}`);
  button.dataset.theme = known;
}

function startTheme() {
  setTheme(remembered("localStorage", "warmpath.theme"));
  byId("theme").addEventListener("click", () => {
    const names = Object.keys(kThemes);
    const next = names[(names.indexOf(byId("theme").dataset.theme) + 1) % names.length];
    remembered("localStorage", "warmpath.theme", next);
    setTheme(next);
  });
}

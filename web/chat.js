// The conversation: what is sent, what comes back, and the field below.

// A prompt that is worth keeping: the second question about it shows what that saves.
const kTable = Array.from(
    {length: 48},
    (_, i) => `shelf-${i + 1} | room ${String.fromCharCode(65 + i * 5 % 26)}${i * 37 % 190 + 10} | box ${
        i * 53 % 900 + 100}`);
const kExamples = {
  "Who are you?": "Hello! Who are you?",
  "What can you do?": "What can you do for me?",
  "A long prompt": `name | room | box\n${kTable.join("\n")}\n\nWhich room does shelf-7 have?`,
};
const kExampleTools = [{
  type: "function",
  function: {
    name: "read_file",
    description: "Read a text file and return its content.",
    parameters:
        {type: "object", properties: {path: {type: "string", description: "Path of the file"}}, required: ["path"]},
  },
}];
const kSettingsName = "warmpath.settings";

const chat = {
  messages: [],  // As the API takes them, without the system prompt.
  nodes: [],     // The element of each.
  session: "",   // Labels the conversation for the cache.
  settings: {system: "", tools: [], temperature: null, maxTokens: null, thinking: ""},
  open: null,     // The answer whose calls wait for their results.
  running: null,  // AbortController of the answer under way.
};

function newSession() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function requestBody() {
  const {settings} = chat;
  const system = settings.system ? [{role: "system", content: settings.system}] : [];
  const body = {
    messages: [...system, ...chat.messages],
    stream: true,
    stream_options: {include_usage: true},
    return_progress: true,
  };
  if (settings.tools.length > 0) body.tools = settings.tools;
  if (settings.temperature !== null) body.temperature = settings.temperature;
  if (settings.maxTokens !== null) body.max_tokens = settings.maxTokens;
  if (settings.thinking) body.reasoning_effort = settings.thinking;
  return body;
}

function add(message, node) {
  chat.messages.push(message);
  chat.nodes.push(node);
  byId("transcript").append(node);
  byId("empty").hidden = true;
}

// Drops messages from `count` on, and what stands below them.
function cutTo(count) {
  const first = chat.nodes[count];
  while (first && byId("transcript").lastElementChild !== first) byId("transcript").lastElementChild.remove();
  first?.remove();
  chat.messages.length = chat.nodes.length = count;
  byId("empty").hidden = byId("transcript").children.length > 0;
}

function dropErrors() {
  for (const node of byId("transcript").querySelectorAll(".error")) node.remove();
}

async function send(text) {
  dropErrors();
  fillOpenCalls();
  const node = userMessage(text, edit);
  add({role: "user", content: text}, node);
  node.scrollIntoView({block: "end"});
  await generate();
}

function edit(node) {
  if (chat.running) return;
  const at = chat.nodes.indexOf(node);
  byId("prompt").value = chat.messages[at].content;
  cutTo(at);
  resizePrompt();
  byId("prompt").focus();
}

async function generate() {
  const answer = new Answer();
  const controller = new AbortController();
  chat.running = controller;
  showRunning(true);
  const stick = keepAtEnd();
  answer.onDraw = stick;
  byId("transcript").append(answer.node);
  stick();
  let failure = null;
  try {
    for await (const chunk of postForEvents(
        "/v1/chat/completions", requestBody(), {"x-session-id": chat.session}, controller.signal))
      answer.take(chunk);
  } catch (error) {
    failure = error;
  }
  if (chat.running !== controller) return;  // A new chat has begun meanwhile.
  const stopped = failure?.name === "AbortError";
  if (stopped) failure = null;
  // A call cut in two would break every later request.
  if (stopped || failure) answer.calls.splice(0).forEach((call) => call.node?.remove());
  answer.end(stopped ? "Stopped." : failure && answer.content ? "Broken off." : null);
  chat.running = null;
  showRunning(false);
  keep(answer, failure);
  stick();
  afterAnswer?.(answer);
}

function keep(answer, failure) {
  const empty = !answer.content && !answer.thought && answer.calls.length === 0;
  if (failure && empty)
    answer.node.remove();
  else
    keepAnswer(answer);
  if (failure) {
    const again = async () => {
      dropErrors();
      if (chat.messages.at(-1)?.role === "assistant") cutTo(chat.messages.length - 1);
      await generate();
    };
    byId("transcript").append(errorMessage(failure, again));
    return;
  }
  announce(answer.calls.length > 0 ? "The answer calls a tool." : "The answer is complete.");
}

function keepAnswer(answer) {
  chat.messages.push(answer.message());
  chat.nodes.push(answer.node);
  const actions = el("div", {class: "actions"});
  if (answer.content) {
    const copy = el("button", {type: "button", class: "link", click: () => copyText(answer.content, copy)}, "Copy");
    actions.append(copy);
  }
  actions.append(el("button", {type: "button", class: "link", click: () => regenerate(answer)}, "Again"));
  answer.foot.append(actions);
  if (answer.calls.length > 0) askForResults(answer);
}

async function regenerate(answer) {
  if (chat.running) return;
  dropErrors();
  cutTo(chat.nodes.indexOf(answer.node));
  await generate();
}

// The page runs no tools: who chats says what they returned.
function askForResults(answer) {
  const fields = answer.calls.map((call, i) => {
    const id = `result-${chat.messages.length}-${i}`;
    call.field = el("textarea", {id, rows: "2", class: "mono", spellcheck: "false"});
    return [
      el("label",
         { for: id
         },
         "Result of ", el("code", {}, call.name)),
      call.field
    ];
  });
  const submit = (event) => {
    event.preventDefault();
    if (chat.running) return;
    fillOpenCalls();
    generate();
  };
  answer.form =
      el("form", {class: "results", submit}, ...fields.flat(),
         el("button", {type: "submit", class: "primary"}, "Send result"));
  answer.node.append(answer.form);
  chat.open = answer;
}

function fillOpenCalls() {
  const answer = chat.open;
  chat.open = null;
  if (!answer || chat.nodes.at(-1) !== answer.node) return;
  answer.form.remove();
  for (const call of answer.calls) {
    const content = call.field.value || "(no result)";
    add({role: "tool", tool_call_id: call.id, content}, toolMessage(call.name, content));
  }
}

function showRunning(running) {
  byId("send").hidden = running;
  byId("stop").hidden = !running;
  if (running) announce("Generating.");
}

const atEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 80;

// Follows the end of the answer for as long as who reads is there.
function keepAtEnd() {
  const box = byId("scroller");
  let follow = true;
  return () => {
    follow = follow ? !box.leftEnd : atEnd(box);
    if (follow) box.scrollTop = box.scrollHeight;
  };
}

function watchScroll() {
  const box = byId("scroller");
  let last = 0;
  box.addEventListener("scroll", () => {
    if (atEnd(box))
      box.leftEnd = false;
    else if (box.scrollTop < last - 2)
      box.leftEnd = true;  // Moved up by hand: what is drawn only moves it down.
    last = box.scrollTop;
    byId("latest").hidden = atEnd(box);
  });
  byId("latest").addEventListener("click", () => {
    box.leftEnd = false;
    box.scrollTop = box.scrollHeight;
  });
}

function resizePrompt() {
  const field = byId("prompt");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, 240)}px`;
}

function startComposer() {
  const field = byId("prompt");
  const submit = () => {
    const text = field.value.trim();
    if (!text || chat.running) return;
    field.value = "";
    resizePrompt();
    send(text);
  };
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  field.addEventListener("input", resizePrompt);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  byId("stop").addEventListener("click", () => {
    chat.running?.abort();
    field.focus();
  });
  byId("new-chat").addEventListener("click", () => {
    chat.running?.abort();
    chat.running = chat.open = null;
    showRunning(false);
    cutTo(0);
    byId("transcript").replaceChildren();
    byId("empty").hidden = false;
    chat.session = newSession();
    field.focus();
  });
  byId("examples")
      .append(...Object.entries(kExamples).map(
          ([name, text]) => el("button", {type: "button", click: () => !chat.running && send(text)}, name)));
}

function startSettings() {
  try {
    Object.assign(chat.settings, JSON.parse(remembered("sessionStorage", kSettingsName) ?? "{}"));
  } catch { /* Of another version: the defaults. */
  }
  const dialog = byId("settings");
  const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  byId("open-settings").addEventListener("click", () => {
    const {system, tools, temperature, maxTokens, thinking} = chat.settings;
    byId("system").value = system;
    byId("tool-list").value = tools.length > 0 ? JSON.stringify(tools, null, 2) : "";
    byId("temperature").value = temperature ?? "";
    byId("max-tokens").value = maxTokens ?? "";
    byId("thinking").value = thinking;
    byId("tool-error").textContent = "";
    dialog.showModal();
  });
  byId("example-tools").addEventListener("click", () => {
    byId("tool-list").value = JSON.stringify(kExampleTools, null, 2);
  });
  byId("settings-form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "save") return;
    const tools = readTools(byId("tool-list").value.trim() || "[]");
    if (!tools) {
      event.preventDefault();
      byId("tool-error").textContent = "Expected a JSON list of tools.";
      return;
    }
    chat.settings = {
      system: byId("system").value.trim(),
      tools,
      temperature: number("temperature"),
      maxTokens: number("max-tokens"),
      thinking: byId("thinking").value
    };
    remembered("sessionStorage", kSettingsName, JSON.stringify(chat.settings));
  });
}

function readTools(text) {
  try {
    const tools = JSON.parse(text);
    return Array.isArray(tools) ? tools : null;
  } catch {
    return null;
  }
}

let afterAnswer = null;  // Of the live view, which looks at once.

function startChat() {
  chat.session = newSession();
  startSettings();
  startComposer();
  watchScroll();
}

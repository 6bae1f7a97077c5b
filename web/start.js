// Puts the parts together.

function showView(view) {
  document.body.dataset.view = view;
  byId("show-chat").setAttribute("aria-pressed", String(view === "chat"));
  byId("show-server").setAttribute("aria-pressed", String(view === "server"));
  if (seen()) look();
}

function startKey() {
  keyWanted.addEventListener("wanted", () => {
    if (!byId("key-form").hidden) return;
    byId("key-form").hidden = false;
    byId("key").focus();
  });
  byId("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    remembered("sessionStorage", kKeyName, byId("key").value.trim());
    byId("key").value = "";
    byId("key-form").hidden = true;
    await greet();
    if (byId("key-form").hidden) byId("prompt").focus();
  });
}

function showState(text, kind) {
  byId("state").textContent = text;
  byId("state").dataset.kind = kind;
}

// Which model this is; asks again while the server loads or cannot be reached.
async function greet() {
  try {
    const {data: [model]} = await getJson("/v1/models");
    if (model.status === "loading") {
      showState("loading", "wait");
      setTimeout(greet, 1000);
      return;
    }
    byId("model-name").textContent = model.id;
    document.title = `${model.id} · Warmpath`;
    showState("ready", "good");
    live.ready = true;
    if (seen()) look();
  } catch (error) {
    showState(error.status === 401 ? "key needed" : error.status === 0 ? "not reached" : "not ready", "bad");
    if (error.status !== 401) setTimeout(greet, 3000);
  }
}

startTheme();
startKey();
startChat();
startServer();
byId("show-chat").addEventListener("click", () => showView("chat"));
byId("show-server").addEventListener("click", () => showView("server"));
byId("prompt").focus();
greet();

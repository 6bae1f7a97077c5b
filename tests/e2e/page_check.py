#!/usr/bin/env python3
"""The page in a headless Chromium, as a person uses it, against a server of the bundled model.

usage: page_check.py URL FOLDER [CHECK...]    screenshots go to FOLDER; without a name all checks but with_key
Prints a line per check. Exit 1 with what was expected and found if one fails.
"""
import json
import pathlib
import sys
import time
import urllib.parse
import urllib.request

from browser import Browser, Failure

TRACE = pathlib.Path(__file__).resolve().parents[2] / "models/flash-next-mini/replay/agentic-200.jsonl"
LONG = "\n".join(f"oaken-{i} | room {i * 7 % 97} | rack {i * 13 % 89}" for i in range(60))


def expect(what, expected, found):
    if expected != found:
        raise Failure(f"{what}: expected {expected!r}, found {found!r}")


def expect_in(what, part, whole):
    if part not in whole:
        raise Failure(f"{what}: expected {part!r} in it, found {whole!r}")


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return json.load(answer)


class Checks:
    def __init__(self, browser, url, folder):
        self.browser, self.url, self.folder = browser, url, pathlib.Path(folder)

    def open(self, **options):
        page = self.browser.page(self.url + "/", **options)
        page.wait("document.querySelector('#state').textContent === 'ready'")
        return page

    def ask(self, page, text):
        """Sends a message and waits for the answer's end; its element's text."""
        before = page.count(".message.answer[aria-busy=false]")
        page.type("#prompt", text)
        page.press("Enter")
        page.wait(f"document.querySelectorAll('.message.answer[aria-busy=false]').length > {before}")
        return page.eval("[...document.querySelectorAll('.message.answer')].at(-1).innerText")

    def clean(self, page):
        """No complaint of the browser, and nothing asked of another host."""
        expect("console", [], page.problems)
        own = urllib.parse.urlsplit(self.url).netloc
        foreign = [r for r in page.requests if urllib.parse.urlsplit(r).netloc != own and not r.startswith("data:")]
        expect("requests to other hosts", [], foreign)

    def settings(self, page, **values):
        page.click("#open-settings")
        for name, value in values.items():
            page.eval(f"document.getElementById({json.dumps(name)}).value = {json.dumps(value)}")
        page.click("#settings button[value=save]")
        expect("the dialog closes", False, page.eval("document.querySelector('#settings').open"))

    def loads(self):
        page = self.open()
        expect("title", True, page.eval("document.title").endswith("Warmpath"))
        expect("focus", "prompt", page.eval("document.activeElement.id"))
        expect("the model", get(self.url, "/v1/models")["data"][0]["id"], page.text("#model-name"))
        # The policy holds: what the page does not hold itself does not run and is not fetched.
        page.eval("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))")
        expect("a foreign script", None, page.eval("window.ran ?? null"))
        expect("it is refused", 1, len(page.problems))
        page.problems.clear()
        self.clean(page)

    def streams_and_reuses(self):
        page = self.open()
        page.eval("""new MutationObserver(() => {
            const text = document.querySelector(".message.answer > .markdown")?.innerText ?? "";
            if (text && text !== (window.seen ??= []).at(-1)) window.seen.push(text);
        }).observe(document.querySelector("#transcript"), { subtree: true, childList: true, characterData: true })""")
        self.settings(page, system=f"Run {time.time_ns()}. Known rooms:\n{LONG}")
        first = self.ask(page, "Hello! Who are you?")
        seen = page.eval("window.seen")
        expect("the answer grows", True, len(seen) > 1)
        expect_in("the first turn", "0 of ", first)
        expect_in("the first turn", "Nothing of this prompt was known.", first)
        second = self.ask(page, "Hello again! Who are you?")
        reused, total = (int(word.replace(",", "")) for word in second[second.rindex("\n", 0, second.index(" prompt tokens")):]
                         .split(" prompt tokens")[0].split(" of "))
        expect(f"most of {total} tokens are reused, {reused} were", True, 0.8 * total < reused < total)
        expect_in("where they were", "from device memory", second)
        page.click(".message.answer:last-child .why > summary")
        expect_in("the account", "Time to first token", page.text(".message.answer:last-child .why dl"))
        page.screenshot(self.folder / "chat-light.png")
        page.dark(True)
        page.screenshot(self.folder / "chat-dark.png")
        self.clean(page)

    def folds(self):
        """Thoughts and calls are folded, and open on a click; a tool's result goes on with the conversation."""
        page = self.open()
        record = json.loads(TRACE.open().readline())
        self.settings(page, system=record["messages"][0]["content"], **{"tool-list": json.dumps(record["tools"])},
                      thinking="none")
        self.ask(page, record["messages"][1]["content"])
        call = record["expected"][0]["tool_calls"][0]
        expect_in("the call", call["name"], page.text(".call > summary"))
        hidden = "document.querySelector('.call > pre').checkVisibility()"
        expect("folded", False, page.eval(hidden))
        page.click(".call > summary")
        expect("open", True, page.eval(hidden))
        expect("its arguments", call["arguments"], json.loads(page.text(".call > pre")))
        page.type(".results textarea", record["messages"][3]["content"])
        before = page.count(".message.answer")
        page.click(".results button")
        page.wait(f"document.querySelectorAll('.message.answer[aria-busy=false]').length > {before}")
        expect_in("what the model makes of it", record["messages"][4]["content"],
                  page.eval("[...document.querySelectorAll('.message.answer')].at(-1).innerText"))
        self.settings(page, thinking="", system="", **{"tool-list": ""})
        page.click("#new-chat")
        self.ask(page, "Hello! Who are you?")
        expect_in("the thought", "Thought for", page.text(".thought > summary"))
        visible = "document.querySelector('.thought > .markdown').checkVisibility()"
        expect("folded", False, page.eval(visible))
        page.click(".thought > summary")
        expect("open", True, page.eval(visible))
        self.clean(page)

    def stops(self):
        """A generation that is stopped frees its slot, and the chat goes on."""
        page = self.open(width=800)  # The live view is not seen, and takes nothing of the slow network.
        slow = {"offline": False, "latency": 0, "downloadThroughput": 1500, "uploadThroughput": -1}
        page.call("Network.emulateNetworkConditions", **slow)
        page.type("#prompt", "Hello! Who are you?")
        page.press("Enter")
        page.wait("document.querySelector('.message.answer').innerText.includes('Thinking')")
        page.click("#stop")
        page.wait("document.querySelector('.message.answer').innerText.includes('Stopped.')")
        # A new chat ends what runs, and nothing of it is left.
        page.type("#prompt", "Hello! Who are you?")
        page.press("Enter")
        page.wait("[...document.querySelectorAll('.message.answer')].at(-1).innerText.includes('Thinking')")
        page.click("#new-chat")
        page.call("Network.emulateNetworkConditions", **{**slow, "downloadThroughput": -1})
        self.ask(page, "Are you there?")
        expect("a new chat is empty", 2, page.count(".message"))
        end = time.monotonic() + 30
        while any(slot["is_processing"] for slot in get(self.url, "/slots")):
            if time.monotonic() > end:
                raise Failure("a stopped generation: expected its slot free, found it busy")
        expect_in("afterwards", "prompt tokens reused", self.ask(page, "Are you still there?"))
        self.clean(page)

    def says_what_failed(self):
        page = self.open()
        self.settings(page, **{"max-tokens": "99999999"})
        page.type("#prompt", "Hello!")
        page.press("Enter")
        page.wait("document.querySelector('.message.error')")
        expect_in("a refusal", "max_tokens: expected 0..", page.text(".message.error"))
        expect_in("its code", "HTTP 400", page.text(".message.error"))
        self.settings(page, **{"max-tokens": ""})
        page.click(".message.error button")
        page.wait("document.querySelector('.account')")
        expect("the error is gone", 0, page.count(".message.error"))
        page.problems.clear()  # The browser reports the 400.
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        page.call("Network.emulateNetworkConditions", **offline)
        page.type("#prompt", "Hello?")
        page.press("Enter")
        page.wait("document.querySelector('.message.error')")
        expect_in("no network", "The server cannot be reached.", page.text(".message.error"))
        page.call("Network.emulateNetworkConditions", **{**offline, "offline": False})
        chunk = {"choices": [{"index": 0, "delta": {"content": "Half an ans"}, "finish_reason": None}]}
        broken = {"error": {"message": "the device is gone", "type": "server_error", "param": None, "code": "device_error"}}
        page.script("/v1/chat/completions", f"data: {json.dumps(chunk)}\n\ndata: {json.dumps(broken)}\n\n")
        page.click(".message.error button")
        page.wait("document.querySelector('.message.error')?.innerText.includes('the device is gone')")
        expect_in("what had come stays", "Half an ans", page.text(".message.answer:nth-last-child(2)"))
        expect("and can be gone on from", False, page.eval("document.querySelector('#send').hidden"))

    def shows_text_as_text(self):
        """What a model says becomes text and the elements of Markdown, and nothing else."""
        page = self.open()
        hostile = "\n\n".join([
            "<img src=x onerror='window.ran = 1'><script>window.ran = 1</script>",
            "[click](javascript:window.ran=1) ![x](http://other.example/x.png) [good](https://example.org/a_b_c)",
            "**bold** and `code <b>` and snake_case_name", "| a | b |\n| --- | --- |\n| 1 | <i>2</i> |",
            "- one\n  - two\n- three", "```html\n<b onclick=x>\n```", "*" * 3000 + "[" * 3000 + "`" * 3000])
        chunk = {"choices": [{"index": 0, "delta": {"content": hostile}, "finish_reason": "stop"}]}
        page.script("/v1/chat/completions", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
        text = self.ask(page, "Hello!")
        expect_in("markup", "<img src=x onerror='window.ran = 1'>", text)
        expect("nothing ran", None, page.eval("window.ran ?? null"))
        for tag, count in {"img": 0, "script": 0, "b": 0, "i": 0, "strong": 1, "table": 1, "pre": 1, "ul": 2}.items():
            expect(f"elements {tag}", count, page.count(f".message.answer > .markdown {tag}"))
        expect("links", ["https://example.org/a_b_c"],
               [a for a in page.eval("[...document.querySelectorAll('.markdown a')].map((a) => a.href)") if "other" not in a])
        expect("a code span", "code <b>", page.text(".message.answer p code"))
        self.clean(page)

    def shows_the_server(self):
        """The live view: requests, a chart of cold and warm, memory, the tree; it rests while nobody looks."""
        page = self.open(width=1360, height=1400)
        self.settings(page, system=f"Run {time.time_ns()}. Known rooms:\n{LONG}", thinking="none")
        self.ask(page, "Hello! Who are you?")
        self.ask(page, "Hello again! Who are you?")
        page.wait("document.querySelectorAll('.chart .cold').length > 0 && document.querySelectorAll('.chart .warm').length > 0")
        page.wait("document.querySelectorAll('.tree .bead:not(.bare)').length > 1")
        recent = get(self.url, "/status")["recent"]
        page.wait(f"document.querySelectorAll('.chart circle').length === {len(recent)}")  # A mark for each.
        inside = page.eval("""(() => {
            const box = document.querySelector(".chart").getBoundingClientRect();
            return [...document.querySelectorAll(".chart circle")].every((mark) => {
                const at = mark.getBoundingClientRect();
                return at.left >= box.left && at.right <= box.right && at.top >= box.top && at.bottom <= box.bottom;
            });
        })()""")
        expect("all inside the chart", True, inside)
        expect("both medians", 2, page.eval("[...document.querySelectorAll('.legend dd')]"
                                            ".filter((node) => /\\d/.test(node.textContent)).length"))
        expect_in("what the chart says aloud", "warm request", page.eval("document.querySelector('.chart').ariaLabel"))
        pools = {pool["pool"]: pool for pool in get(self.url, "/status")["memory"]["pools"]}
        expect("pools", len(pools), page.count(".pools li"))
        anchors = sum(run["anchor"] is not None for run in get(self.url, "/cache/tree")["runs"])
        page.wait(f"document.querySelectorAll('.tree .bead:not(.bare)').length === {anchors}")
        expect("an anchor's worth", True, " uses ahead" in page.text(".tree .run .hint"))
        expect("slots", 4, page.count(".slots li"))
        page.screenshot(self.folder / "server-light.png")
        page.dark(True)
        page.screenshot(self.folder / "server-dark.png")
        # Two ticks of a clock that is no faster than the page's.
        ticks = """new Promise((resolve) => {
            let count = 0;
            const timer = setInterval(() => ++count === 2 && (clearInterval(timer), resolve()), 1000);
        })"""
        looks = lambda: sum(request.endswith("/status") for request in page.requests)
        before = looks()
        page.eval(ticks)
        expect("it looks while it is seen", True, looks() > before)
        page.eval("Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true })")
        before = looks()
        page.eval(ticks)
        expect("it rests while it is not", before, looks())
        self.clean(page)

    def fits_a_phone(self):
        page = self.open(width=360, height=740)
        self.ask(page, LONG + "\nWhich room does oaken-3 have? " + "x" * 300)
        for view in ("server", "chat"):
            page.click(f"#show-{view}")
            width = page.eval("document.scrollingElement.scrollWidth")
            expect(f"width of what can be scrolled to, {view}", True, width <= 360)
            page.screenshot(self.folder / f"phone-{view}.png")
        for name in ("new-chat", "open-settings", "theme", "send"):
            right = page.eval(f"document.getElementById('{name}').getBoundingClientRect().right")
            expect(f"the right edge of {name} at {right}", True, 0 < right <= 360)
        self.clean(page)

    def works_by_keyboard(self):
        """Every control has a name and can be reached; a dialog opens, takes the focus and gives it back."""
        page = self.open()
        self.ask(page, "Hello! Who are you?")
        nameless = page.eval("""[...document.querySelectorAll("button, input, select, textarea, summary, a")]
            .filter((node) => node.checkVisibility() && !(node.getAttribute("aria-label") || node.innerText?.trim() ||
                                                         node.labels?.length))
            .map((node) => node.outerHTML)""")
        expect("controls without a name", [], nameless)
        page.eval("document.querySelector('#open-settings').focus()")
        page.press("Enter")
        page.wait("document.querySelector('#settings').open")
        page.press("Escape")
        page.wait("!document.querySelector('#settings').open")
        expect("focus comes back", "open-settings", page.eval("document.activeElement.id"))
        expect("one main heading", 1, page.count("h1"))
        self.clean(page)

    def with_key(self):
        """A server with --api-key: the page asks for it, keeps it in the tab, and works from then on."""
        page = self.browser.page(self.url + "/")
        page.wait("!document.querySelector('#key-form').hidden")
        expect("the field has the focus", "key", page.eval("document.activeElement.id"))
        page.type("#key", "another")
        page.press("Enter")
        page.wait("document.querySelector('#key').value === '' && !document.querySelector('#key-form').hidden")
        page.type("#key", KEY)
        page.press("Enter")
        page.wait("document.querySelector('#state').textContent === 'ready'")
        expect("the field goes", True, page.eval("document.querySelector('#key-form').hidden"))
        expect_in("an answer", "prompt tokens reused", self.ask(page, "Hello! Who are you?"))
        expect("not kept beyond the tab", False, page.eval(f"JSON.stringify({{...localStorage}}).includes('{KEY}')"))
        expect("nor in the address", False, page.eval(f"location.href.includes('{KEY}')"))
        other = self.browser.page(self.url + "/")
        other.wait("!document.querySelector('#key-form').hidden")


KEY = "a-key-of-the-test"
HELPERS = ("open", "ask", "clean", "settings", "with_key")


def main():
    url, folder, *names = sys.argv[1:]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    names = names or [name for name in vars(Checks) if not name.startswith("_") and name not in HELPERS]
    with Browser() as browser:
        checks = Checks(browser, url, folder)
        for name in names:
            begin = time.monotonic()
            try:
                getattr(checks, name)()
            except Failure as failure:
                sys.exit(f"{name}: {failure}")
            print(f"{name}: ok ({time.monotonic() - begin:.1f} s)", flush=True)


main()

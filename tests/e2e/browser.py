"""A headless Chromium, driven by its DevTools protocol over a pipe: no driver program, no library, no port.

    with Browser() as browser:
        page = browser.page(url)
        page.wait("document.title")
        page.click("#send")
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
SECONDS_MAX = 60


class Failure(Exception):
    pass


class Browser:
    def __init__(self):
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if not program:
            raise Failure(f"expected one of {', '.join(PROGRAMS)}, found none; run ./do setup")
        self.folder = tempfile.TemporaryDirectory(prefix="page-test-", ignore_cleanup_errors=True)
        theirs_in, self.commands = os.pipe()
        self.answers, theirs_out = os.pipe()

        def place():  # The browser reads commands from descriptor 3 and answers on 4.
            read, write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out))
            os.dup2(read, 3)
            os.dup2(write, 4)

        flags = ["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                 "--force-color-profile=srgb", f"--user-data-dir={self.folder.name}"]
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.process = subprocess.Popen([program, *flags, "about:blank"], preexec_fn=place, pass_fds=(3, 4),
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer = b""
        self.number = 0
        self.results = {}
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.log.close()
        self.folder.cleanup()

    def call(self, method, session=None, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        end = time.monotonic() + SECONDS_MAX
        while number not in self.results:
            self.read(end, method)
        answer = self.results.pop(number)
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def read(self, end, what):
        """Takes what the browser says until `end`: answers are kept, events go to their page."""
        ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
        piece = os.read(self.answers, 1 << 20) if ready else None
        if not piece:
            self.log.seek(0)
            raise Failure(f"{what}: expected the browser's answer, found {'silence' if piece is None else 'its end'}: "
                          f"{self.log.read()[-2000:]}")
        *messages, self.buffer = (self.buffer + piece).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.results[message["id"]] = message
            elif page := self.pages.get(message.get("sessionId")):
                page.event(message["method"], message["params"])

    def page(self, url, width=1280, height=900, dark=False):
        # A context of its own: nothing is remembered from another page.
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.dark(dark)
        page.call("Page.navigate", url=url)
        page.wait("document.readyState === 'complete' && location.protocol !== 'about:'")
        return page


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session
        self.problems = []  # Errors and warnings of the console, exceptions, refused loads.
        self.requests = []  # Addresses.
        self.scripted = []  # (pattern, status, type, body): what is answered in the server's stead, once each.
        self.paused = []

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Fetch.requestPaused":
            self.paused.append(params)

    def script(self, path, body, status=200, kind="text/event-stream"):
        """The next request of this path is answered with `body` and never reaches the server."""
        self.scripted.append((path, status, kind, body))
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}"} for path, *_ in self.scripted])

    def answer_paused(self):
        for params in self.paused[:]:
            self.paused.remove(params)
            for scripted in self.scripted:
                path, status, kind, body = scripted
                if params["request"]["url"].endswith(path):
                    self.scripted.remove(scripted)
                    self.call("Fetch.fulfillRequest", requestId=params["requestId"], responseCode=status,
                              responseHeaders=[{"name": "content-type", "value": kind}],
                              body=base64.b64encode(body.encode()).decode())
                    break
            else:
                self.call("Fetch.continueRequest", requestId=params["requestId"])

    def eval(self, expression):
        """The value of an expression; of a promise, what it comes to."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise Failure(f"{expression}: {details.get('exception', {}).get('description') or details['text']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=SECONDS_MAX):
        """Until it holds."""
        end = time.monotonic() + seconds
        while not self.eval(f"Boolean({expression})"):
            self.answer_paused()
            if time.monotonic() > end:
                text = self.eval("document.body.innerText")
                raise Failure(f"expected {expression} within {seconds} s; the page says:\n{text[:3000]}\n{self.problems}")
            self.eval("new Promise((resolve) => setTimeout(resolve, 20))")

    def text(self, selector):
        return self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def count(self, selector):
        return self.eval(f"document.querySelectorAll({json.dumps(selector)}).length")

    def click(self, selector):
        """A click of the mouse where the element is; it has to be there, and nothing over it."""
        found = self.eval(f"""(() => {{
            const node = document.querySelector({json.dumps(selector)});
            node?.scrollIntoView({{ block: "nearest" }});
            const box = node?.getBoundingClientRect();
            if (!box?.width) return null;
            const at = {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }};
            const hit = document.elementFromPoint(at.x, at.y);
            return node.contains(hit) ? at : {{ hit: hit?.outerHTML.slice(0, 200) ?? "nothing" }};
        }})()""")
        if not found or "hit" in found:
            raise Failure(f"click {selector}: expected it in sight, found {found and found['hit']}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **found)

    def type(self, selector, text):
        self.eval(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key, **more):
        code = {"Enter": 13, "Tab": 9, "Escape": 27}[key]
        text = {"Enter": "\r"}.get(key, "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, **more)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)

    def dark(self, dark):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

"""A browser without a window, steered through its driver: the few calls of WebDriver that the
report's test needs, with the Python standard library alone.

    with Browser(width=1200, height=900) as browser:
        browser.open("file:///tmp/report.html")
        browser.run("return document.title")

Every wait has a limit; what the page says on its console is kept and can be asked for."""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

PROGRAMS = {"browser": ("chromium", "chromium-browser", "google-chrome", "chrome"),
            "driver": ("chromedriver", "chromium.chromedriver")}
ANSWER_LIMIT_S = 120


class Refused(Exception):
    """The driver answered with an error."""


def program(kind):
    """The path of the browser or of its driver, or None."""
    found = (shutil.which(name) for name in PROGRAMS[kind])
    return next((path for path in found if path), None)


def free_driver(folder):
    """Starts the driver on a port of its own choice; returns (process, port)."""
    log_path = os.path.join(folder, "driver.log")
    log = open(log_path, "w", encoding="utf-8")
    process = subprocess.Popen([program("driver"), "--port=0"], stdout=log, stderr=log, cwd=folder,
                               env=dict(os.environ, HOME=folder, TMPDIR=folder))
    log.close()
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with open(log_path, encoding="utf-8") as text:
            told = re.search(r"started successfully on port (\d+)\.", text.read())
        if told:
            return process, int(told.group(1))
        time.sleep(0.02)
    process.kill()
    raise Refused("the browser's driver did not start")


class Browser:
    def __init__(self, width=1200, height=900, dark=False):
        self.folder = tempfile.mkdtemp(prefix="tunerd-browser-")
        self.process, port = free_driver(self.folder)
        self.base = f"http://127.0.0.1:{port}/session"
        try:
            self.start(width, height, dark)
        except BaseException:
            self.close()
            raise

    def start(self, width, height, dark):
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars", f"--user-data-dir={self.folder}/profile",
                     "--no-first-run", "--disable-background-networking"]
        options = {"binary": program("browser"), "args": arguments}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options,
                        "goog:loggingPrefs": {"browser": "ALL", "performance": "OFF"}}
        answer = self.ask("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self.base += "/" + answer["sessionId"]
        self.version = answer["capabilities"]["browserVersion"]
        self.size(width, height)
        self.prefer("dark" if dark else "light")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.base.rsplit("/", 1)[1] != "session":
            try:
                self.ask("DELETE", "")
            except (Refused, OSError):
                pass
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode(errors="replace")[:600]) from None

    def cdp(self, command, **params):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def size(self, width, height, mobile=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.cdp("Emulation.setEmulatedMedia", media="", features=[feature])

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def run_async(self, script, *args):
        """The script calls its last argument with the answer."""
        return self.ask("POST", "/execute/async", {"script": script, "args": list(args)})

    def console(self):
        """What the console was told since the last call."""
        return self.ask("POST", "/se/log", {"type": "browser"})

    def drag(self, start, end):
        """Presses the pointer at a point of the window, moves and lets go, as a hand does."""
        steps = [(start[0] + (end[0] - start[0]) * k // 5, start[1] + (end[1] - start[1]) * k // 5)
                 for k in range(1, 6)]
        moves = [{"type": "pointerMove", "duration": 30, "x": x, "y": y} for x, y in steps]
        first = {"type": "pointerMove", "duration": 0, "x": start[0], "y": start[1]}
        pointer = {"type": "pointer", "id": "hand", "parameters": {"pointerType": "mouse"},
                   "actions": [first, {"type": "pointerDown", "button": 0}, *moves,
                               {"type": "pointerUp", "button": 0}]}
        self.ask("POST", "/actions", {"actions": [pointer]})

    def keys(self, text):
        """Types into what has the focus."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys",
                                                   "actions": actions}]})

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("GET", "/screenshot")))

    def paper(self):
        """The page as a PDF, on A4."""
        return base64.b64decode(self.cdp("Page.printToPDF", paperWidth=8.27, paperHeight=11.69,
                                         preferCSSPageSize=True, printBackground=True)["data"])

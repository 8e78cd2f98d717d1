"""A headless Chromium, driven over a pipe by its own protocol (CDP), for tests.

https://chromedevtools.github.io/devtools-protocol/ : only domains that are called stable there.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfleet.waiting import wait_until

NAMES = ("chromium", "google-chrome")
REPLY_SECONDS = 60.0
STOP_SECONDS = 20.0
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-proxy-server",
    "--password-store=basic",
    # Nothing but this machine is ever asked.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
# The protocol is spoken at file descriptors 3 and 4, whatever numbers our ends have.
SHELL = 'from=$1 to=$2; shift 2; exec "$@" 3<"/dev/fd/$from" 4>"/dev/fd/$to"'
# What Chromium answers for a page that was left before it answered itself.
LEFT = "Inspected target navigated or closed"


class PageLeft(RuntimeError):
    """The page was left before it answered."""


def program() -> str | None:
    """The browser of this machine, if there is one; one in a snap sees no pipe and no /tmp."""
    found = filter(None, map(shutil.which, NAMES))
    return next((path for path in found if Path(path).resolve().name != "snap"), None)


@dataclass
class Chromium:
    """One browser with a profile of its own in ``folder``."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = None
    _input: int = -1
    _output: int = -1
    _received: bytes = b""
    _number: int = 0
    _tabs: dict[str, Tab] = field(default_factory=dict)

    def start(self) -> None:
        """Start it."""
        found = program()
        assert found, f"no browser of {', '.join(NAMES)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        theirs_in, self._input = os.pipe()
        self._output, theirs_out = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self.folder / 'profile'}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        with (self.folder / "chromium.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", SHELL, "sh", str(theirs_in), str(theirs_out), found, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
            )
        os.close(theirs_in)
        os.close(theirs_out)

    def stop(self) -> None:
        """End it and all its processes."""
        if self._process is None:
            return
        for end in (self._input, self._output):
            os.close(end)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=STOP_SECONDS)
        self._process = None

    def tab(self, context: str = "") -> Tab:
        """A new tab; it shares the cookies of the others of its browser context."""
        where = {"browserContextId": context} if context else {}
        target = self.send("Target.createTarget", {"url": "about:blank", **where})["targetId"]
        attached = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(browser=self, session=attached["sessionId"])
        self._tabs[tab.session] = tab
        for domain in ("Page", "Network", "Runtime"):
            tab.send(f"{domain}.enable")
        return tab

    def send(
        self, method: str, values: dict[str, Any] | None = None, session: str = ""
    ) -> dict[str, Any]:
        """Ask the browser and wait for its answer; events that come first go to their tabs."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": values or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._input, data) :]
        deadline = time.monotonic() + REPLY_SECONDS
        while True:
            got = self._receive(deadline, method)
            if got.get("id") == number:
                if "error" in got:
                    left = LEFT in got["error"]["message"]
                    raise (PageLeft if left else RuntimeError)(f"{method}: {got['error']}")
                return dict(got["result"])

    def _receive(self, deadline: float, what: str) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            while b"\0" not in self._received:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError(f"the browser did not answer {what}")
                chunk = os.read(self._output, 1 << 20)
                if not chunk:
                    raise RuntimeError(f"the browser ended: {self._log()}")
                self._received += chunk
        one, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        tab = self._tabs.get(message.get("sessionId", ""))
        if tab is not None and "method" in message:
            tab.hear(message["method"], message["params"])
        return message

    def _log(self) -> str:
        return (self.folder / "chromium.log").read_text(errors="replace")[-2000:]


@dataclass
class Tab:
    """One tab. ``answers`` has the status and the address of every answer that it got, ``errors``
    what scripts threw."""

    browser: Chromium
    session: str
    answers: list[tuple[int, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def send(self, method: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the browser about this tab."""
        return self.browser.send(method, values, self.session)

    def hear(self, event: str, values: dict[str, Any]) -> None:
        """Take note of an event."""
        if event == "Network.responseReceived":
            self.answers.append((values["response"]["status"], values["response"]["url"]))
        elif event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"])[:500])

    def open(self, address: str) -> None:
        """Go to ``address``; raises when nothing answers there."""
        failed = self.send("Page.navigate", {"url": address}).get("errorText")
        assert not failed, f"{address}: {failed}"

    def back(self, steps: int = -1) -> None:
        """Go back in the history, or forward, to another document; returns when this one is left.

        The page is asked for what it never answers: whether an answer to ``history.go`` alone
        still comes out of a page that is being left is a matter of luck.
        """
        with suppress(PageLeft):
            self.evaluate(f"new Promise(() => history.go({steps}))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        got = self.send(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True},
        )
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def wait_for(self, expression: str, *, seconds: float = 60.0) -> Any:
        """The value of ``expression`` as soon as it is truthy."""

        def probe() -> Any:
            # A page that is being left answers nothing.
            with suppress(RuntimeError, AssertionError):
                return self.evaluate(expression)

        def reason() -> str:
            with suppress(RuntimeError, AssertionError):
                return f"{self.evaluate('location.href')}: {self.text()[:1000]}"
            return "the page does not answer"

        return wait_until(probe, what=expression, timeout=seconds, interval=0.1, reason=reason)

    def text(self) -> str:
        """What a reader sees."""
        return str(self.evaluate("document.body.innerText"))

    def click(self, selector: str) -> None:
        """Click the first element of ``selector``, as the user would."""
        box = self.wait_for(
            f"(() => {{const e = document.querySelector({json.dumps(selector)});"
            "if (!e) return null; e.scrollIntoView(); const b = e.getBoundingClientRect();"
            "return b.width && {x: b.x + b.width / 2, y: b.y + b.height / 2}})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                {"type": kind, **box, "button": "left", "clickCount": 1},
            )

    def look(self, *, width: int, height: int = 800, dark: bool = False) -> None:
        """Be a screen of this size, in a light or dark theme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", {"features": [theme]})

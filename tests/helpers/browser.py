"""Chromium by its own protocol: sheets as people see them, at a width, on paper, by keyboard."""

import base64
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from websockets.sync.client import connect

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-port=0"),
)

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

AXE = "axe-core@4.14.1"
"""The rules of accessibility, a package of npm."""


def require_browser() -> str:
    """The program; without one the test is skipped, but never in CI."""
    if BROWSER is None:
        assert not os.environ.get("CI"), "pages are tested in Chromium; install it"
        pytest.skip("no Chromium on this machine")
    return BROWSER


def axe_source() -> str:
    """The text of axe-core; without npm the test is skipped, but never in CI."""
    if shutil.which("npm") is None:
        assert not os.environ.get("CI"), "pages are tested by axe-core; install npm"
        pytest.skip("no npm on this machine")
    folder = Path(tempfile.gettempdir()) / AXE.replace("@", "-")
    file = folder / f"{AXE.replace('@', '-')}.tgz"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True)
    with tarfile.open(file) as packed:
        return packed.extractfile("package/axe.min.js").read().decode()


class Browser:
    """One tab of a Chromium of its own."""

    def __init__(self, folder: Path) -> None:
        command = [require_browser(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **nowhere)
        self._socket = connect(self._tab(folder), max_size=None)
        self._number = 0
        self._events: list[dict] = []
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")

    def _tab(self, folder: Path) -> str:
        for _ in range(300):
            try:
                port = (folder / "DevToolsActivePort").read_text().split()[0]
                with urlopen(f"http://127.0.0.1:{port}/json") as answer:
                    tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
                return tabs[0]["webSocketDebuggerUrl"]
            except (OSError, IndexError):
                time.sleep(0.1)
        raise TimeoutError("Chromium does not start")

    def send(self, method: str, **params: object) -> dict:
        """Call a method of the protocol; its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=60))
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self._events.append(said)

    def open(self, url: str) -> None:
        """Go to a place, and wait until it is loaded."""
        self._events.clear()
        self.send("Page.navigate", url=url)
        self.loaded()

    def loaded(self) -> None:
        """Wait until the sheet that comes is loaded."""
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(json.loads(self._socket.recv(timeout=60)))
        self._events.clear()

    def run(self, script: str) -> object:
        """The value of a script in the sheet."""
        how = {"awaitPromise": True, "returnByValue": True}
        answer = self.send("Runtime.evaluate", expression=script, **how)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def width(self, pixels: int, height: int = 900) -> None:
        """See the sheet at a width."""
        size = {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        typed = {"text": "\r"} if key == "Enter" else {}
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], **typed}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, **pressed)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write what is seen to a PNG."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self, path: Path) -> None:
        """Print to a PDF."""
        printed = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(printed["data"]))

    def violations(self) -> list[str]:
        """What axe-core finds in the sheet."""
        self.send("Page.setBypassCSP", enabled=True)
        self.run(axe_source() + "; 0")
        faults = self.run("axe.run().then(r => r.violations)")
        return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in faults]

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()

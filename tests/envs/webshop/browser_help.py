"""What the tests of the browser front end share: whether there is a browser, what runs of it, and shops with pages that try to do harm."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from shop_records import HUMAN, NOTES, PRODUCTS, product, values

from agent_gym.envs.webshop import Catalogue, Session, Shop

NASTY = (
    'Mug </button></form><button class="button" name="press" value="0">Buy Now</button> <img src=x onerror="document.title=\'ran\'">'
    "<script>document.title='ran'</script> [SEP] Buy Now \u202eRTL\u202c \u200f 😀👩‍👩‍👧 \x00 \x07 ￾ \xa0  two  blanks &lt;&#10;&nbsp; <!-- \ud83d"
)


def require_browser() -> None:
    """Skips without selenium or Chromium; fails where nothing may be missing."""
    require("selenium")
    if shutil.which("chromedriver") is None or (shutil.which("chromium") or shutil.which("google-chrome")) is None:
        if os.environ.get("AGENT_GYM_REQUIRE_ALL"):
            pytest.fail("AGENT_GYM_REQUIRE_ALL is set, but Chromium or its driver is missing")
        pytest.skip("needs Chromium and its driver", allow_module_level=True)


def nasty_shop(folder: Path) -> Shop:
    """A shop with all that the records of the other tests have, and worse."""
    more = [
        product(
            "D000000001",
            NASTY,
            full_description=NASTY + "long " * 30_000,
            small_description=[NASTY, "\x0b", "\u2028", "a\rb", "\u200b", "x" * 70_000],
            customization_options={
                "Nasty <b>": values("<b>", "</button>", "😀", "\u202exel", "a 'b' \"c\" & d", "press", "a" * 3_000),
                "Other": values("<b>", "[clicked button] x [clicked button_]", "next >", "1 oz/2 oz"),
            },
        )
    ]
    notes = {**NOTES, "D000000001": {"attributes": [NASTY], "instruction": f"Find me {NASTY}", "instruction_attributes": [NASTY]}}
    return Shop(Catalogue.from_records([*PRODUCTS, *more], notes, HUMAN, folder=folder, cache_dir=folder / "cache"), goals="synthetic")


def goal_of(shop: Shop, asin: str) -> int:
    """The first goal that asks for a product."""
    return next(index for index in range(len(shop.goals)) if shop.goals[index].product.asin == asin)


def altered(change: Callable[[str], str]) -> type[Session]:
    """A visit whose pages are changed on their way to the browser; the text of it is not."""

    class Altered(Session):
        def html(self, target: str = "") -> str:
            return change(super().html(target))

    return Altered


@contextmanager
def another_server() -> Iterator[tuple[int, list[str]]]:
    """A server at another port of this machine, and the list of what was asked of it."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>elsewhere</p>")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def processes(folder: str | Path) -> dict[int, str]:
    """The living processes of the browser whose folder this is, by pid: the guard, the driver's group and whatever names the folder."""
    found: dict[int, tuple[str, str]] = {}
    groups = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if state == "Z":
            continue
        found[int(entry.name)] = (command, group)
        if str(folder) in command and "--type=" not in command and "guard.py" not in command:
            groups.add(group)
    return {pid: command for pid, (command, group) in found.items() if group in groups or str(folder) in command}


def driver_of(folder: str | Path) -> int:
    """The pid of the driver."""
    return next(pid for pid, command in processes(folder).items() if "chromedriver" in command.split(" ")[0])


def browser_of(folder: str | Path) -> int:
    """The pid of the browser's main process."""
    return next(pid for pid, command in processes(folder).items() if "--user-data-dir=" in command and "--type=" not in command)


def kill(pid: int) -> None:
    """Ends a process that the test has started."""
    os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether it becomes true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True

"""Chromium for the browser front end: one process that serves many visits, each in a tab of its own with nothing of another visit in it.

`open_tab` gives a visit its tab in the browser of this process, which is started when it is first needed, replaced after some hundreds of episodes, and
ended with the last front end that uses it, at the latest with the interpreter. A tab belongs to a user context of its own (WebDriver BiDi), so cookies,
storage and cache of one visit are not seen in another.

What the browser may do is cut down to what the shop needs:

- every address but that of our own site is sent to a proxy that does not exist, other ports of this machine included;
- downloads are refused;
- its home, its profile and its temporary files are one folder, which is removed with it;
- as an ordinary user it runs in Chromium's sandbox. Chromium cannot do that as root, so for uid 0, and for nobody else, it runs without one; see
  `sandboxed`.

Nothing outlives this process: driver and browser run under `guard`, which ends them and removes the folder when this process closes them or ends in
whatever way, SIGKILL included. A child made by fork has no part in any of this: it starts a browser of its own.
"""

from __future__ import annotations

import atexit
import base64
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_gym.core import EnvFault
from agent_gym.envs.webshop.site import Site

__all__ = ["BrowserOptions", "Chromium", "Tab", "close_all", "leave", "open_tab", "sandboxed"]

_BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALL = (
    "install them (Debian and Ubuntu: apt-get install chromium chromium-driver), or name them: "
    'browser_options={"chrome_binary": PATH, "chromedriver": PATH}'
)
_FLAGS = (
    "--disable-background-networking", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding", "--disable-breakpad", "--disable-client-side-phishing-detection", "--disable-component-update",
    "--disable-default-apps", "--disable-dev-shm-usage", "--disable-domain-reliability", "--disable-extensions", "--disable-gpu",
    "--disable-quic", "--disable-sync", "--metrics-recording-only", "--mute-audio", "--no-default-browser-check", "--no-first-run",
    "--no-pings", "--password-store=basic", "--use-mock-keychain",
    "--disable-features=MediaRouter,OptimizationHints,Translate,NetworkPrediction",
)  # fmt: skip
_PREFERENCES: dict[str, Any] = {
    "download_restrictions": 3,  # all of them
    "credentials_enable_service": False,
    "profile.password_manager_enabled": False,
    "profile.default_content_setting_values.notifications": 2,
    "profile.default_content_setting_values.geolocation": 2,
}
_GUARD = Path(__file__).with_name("guard.py")
_START_LIMIT = 60.0  # seconds for driver and browser to start, on a machine that has much else to do
_GRACE = 5.0  # seconds beyond the step's limit until the driver itself counts as hanging


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """How the browser is run.

    Attributes:
        chrome_binary: The program; None looks for Chromium or Chrome on the PATH.
        chromedriver: Its driver; None looks for `chromedriver` on the PATH.
        headless: Without a window.
        step_timeout: Seconds that a page or a command of the browser may take.
        window_size: Width and height in pixels.
        episodes_per_browser: After so many visits a new process takes over.
    """

    chrome_binary: str | None = None
    chromedriver: str | None = None
    headless: bool = True
    step_timeout: float = 30.0
    window_size: tuple[int, int] = (1024, 768)
    episodes_per_browser: int = 500

    def __post_init__(self) -> None:
        if not self.step_timeout > 0:
            raise ValueError(f"step_timeout must be a positive number of seconds, got {self.step_timeout}")
        if len(self.window_size) != 2 or not all(isinstance(side, int) and side > 0 for side in self.window_size):
            raise ValueError(f"window_size must be width and height in pixels, got {self.window_size}")
        if self.episodes_per_browser < 1:
            raise ValueError(f"episodes_per_browser must be at least 1, got {self.episodes_per_browser}")

    def check(self) -> None:
        """Says at once what is missing.

        Raises:
            ImportError: Without selenium.
            RuntimeError: Without Chromium or its driver, or without a display for a window.
        """
        try:
            import selenium  # noqa: F401  # only whether it is there
        except ImportError as error:
            raise ImportError('browser=True needs selenium: pip install "agentr1-gym[browser]"') from error
        self.programs()
        if not self.headless and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise RuntimeError(
                "headless=False opens a window, and there is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set); use headless=True"
            )

    def programs(self) -> tuple[str, str]:
        """The paths of browser and driver.

        Returns:
            Two paths.

        Raises:
            RuntimeError: If one of them is not there.
        """
        binary = shutil.which(self.chrome_binary) if self.chrome_binary else next(filter(None, map(shutil.which, _BINARIES)), None)
        driver = shutil.which(self.chromedriver or "chromedriver")
        if binary is None:
            raise RuntimeError(f"browser=True needs Chromium, and {self.chrome_binary or ', '.join(_BINARIES)} cannot be found; {_INSTALL}")
        if driver is None:
            raise RuntimeError(
                f"browser=True needs Chromium's driver, and {self.chromedriver or 'chromedriver'} cannot be found; {_INSTALL}"
            )
        return binary, driver


def sandboxed() -> bool:
    """Whether Chromium is run in its sandbox: always but as root, where it refuses to.

    Returns:
        False for root.
    """
    return os.getuid() != 0


class Chromium:
    """One browser process and its driver. Commands of one tab at a time, so it is safe in threads.

    Attributes:
        options: How it is run.
        port: Of the site, the only address it may reach.
        episodes: How many tabs it has had.
        tabs: Those that are open.
        broken: Why it cannot be used any more, or "".
        folder: Its home, profile and temporary files; removed with it.
    """

    def __init__(self, options: BrowserOptions, port: int) -> None:
        self.options, self.port = options, port
        self.episodes = 0
        self.tabs: set[Tab] = set()
        self.broken = ""
        self.folder = Path(tempfile.mkdtemp(prefix="agent-gym-browser-"))
        self.lock = threading.RLock()
        self.current = ""
        self._guard: subprocess.Popen[bytes] | None = None
        self.driver: Any = None

    def start(self) -> None:
        """Starts driver and browser.

        Raises:
            EnvFault: If they do not start.
        """
        from selenium import webdriver
        from selenium.common.exceptions import WebDriverException
        from urllib3.exceptions import HTTPError
        from websocket import WebSocketException

        self._failures: tuple[type[Exception], ...] = (WebDriverException, HTTPError, WebSocketException, OSError)
        with self.commands("start"):
            address = f"http://127.0.0.1:{self._start_driver()}"
            self._config = _client_config(address, _START_LIMIT)
            from selenium.webdriver.chromium.remote_connection import ChromiumRemoteConnection

            executor = ChromiumRemoteConnection(address, "goog", "chrome", client_config=self._config)
            self.driver = webdriver.Remote(command_executor=executor, options=self._driver_options(webdriver.ChromeOptions()))
            self.driver.set_page_load_timeout(self.options.step_timeout)
            self.driver.set_script_timeout(self.options.step_timeout)
            self._config.timeout = self._config.websocket_timeout = self.options.step_timeout + _GRACE
            self.home = self.current = self.driver.current_window_handle

    def _start_driver(self) -> int:
        """Starts the driver under its guard, and gives its port."""
        home = {"HOME": str(self.folder), "TMPDIR": str(self.folder)}
        if not self.options.headless:
            home["XAUTHORITY"] = os.environ.get("XAUTHORITY", str(Path.home() / ".Xauthority"))
        kept = {name: value for name, value in os.environ.items() if name not in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "CHROMIUM_FLAGS")}
        with (self.folder / "driver.log").open("w+b") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self.folder), self.options.programs()[1], "--port=0"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**kept, **home},
                start_new_session=True,
            )
            limit = time.monotonic() + _START_LIMIT
            while True:
                said = os.pread(log.fileno(), 65_536, 0)
                if found := re.search(rb"group (\d+)\n.* on port (\d+)\.", said, re.DOTALL):
                    self._group = int(found[1])
                    return int(found[2])
                if self._guard.poll() is not None or time.monotonic() > limit:
                    raise OSError(f"the driver did not start: {said[-500:].decode(errors='replace')}")
                time.sleep(0.02)

    def _driver_options(self, options: Any) -> Any:
        width, height = self.options.window_size
        flags = [*_FLAGS, *_network_flags(self.port), f"--user-data-dir={self.folder / 'profile'}", f"--window-size={width},{height}"]
        if self.options.headless:
            flags.append("--headless=new")
        if not sandboxed():
            flags.append("--no-sandbox")
        for flag in flags:
            options.add_argument(flag)
        options.binary_location = self.options.programs()[0]
        options.page_load_strategy = "eager"
        options.web_socket_url = True
        options.add_experimental_option("prefs", _PREFERENCES)
        return options

    @contextmanager
    def commands(self, purpose: str) -> Iterator[None]:
        """Around commands to the driver: one visit's at a time. When one fails the browser is ended, and with it the visits in it.

        Args:
            purpose: For the message.

        Yields:
            Nothing, for `with`.

        Raises:
            EnvFault: If a command fails, or the browser is no more.
        """
        with self.lock:
            if self.broken:
                raise EnvFault(self.broken)
            try:
                yield
            except EnvFault:
                raise
            except self._failures as error:
                reason = (str(getattr(error, "msg", None) or error).strip().splitlines() or [""])[0]
                self._end(f"the browser failed ({purpose}): {type(error).__name__}: {reason}")
                raise EnvFault(self.broken) from error
            except BaseException:  # a half-finished command cannot be continued
                self._end(f"the browser was interrupted ({purpose})")
                raise

    def open_tab(self) -> Tab:
        """Opens a tab in a user context of its own.

        Returns:
            The tab, empty.

        Raises:
            EnvFault: If the browser fails.
        """
        with self.commands("open a tab"):
            self.episodes += 1
            self.select(self.home)  # a browser that is gone says so here, and at once
            context = self.driver.browser.create_user_context()
            _refuse_downloads(self.driver, context)
            tab = Tab(self, context, self.driver.browsing_context.create(type="tab", user_context=context))
            self.tabs.add(tab)
            return tab

    def select(self, handle: str) -> None:
        """Makes a window the one that commands go to.

        Args:
            handle: The driver's name of the window.
        """
        if self.current != handle or handle == self.home:
            self.driver.switch_to.window(handle)
            self.current = handle

    def close(self) -> None:
        """Ends driver and browser and removes their files; may be called twice."""
        with self.lock:
            if not self.broken:
                self._end("the browser was closed")

    def _end(self, reason: str) -> None:
        """Lets the guard end everything. Nothing in the profile is worth a farewell, and Chromium's takes seconds."""
        self.broken = reason
        self.tabs.clear()
        if self._guard is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        assert self._guard.stdin is not None
        with _without_goodbye(self.driver):
            self._guard.stdin.close()
            if self._guard.wait() != 0:  # somebody has ended the guard
                with suppress(OSError):
                    os.killpg(self._group, signal.SIGKILL)
                shutil.rmtree(self.folder, ignore_errors=True)
        if self.driver is not None:
            self.driver.command_executor.close()

    def forget(self) -> None:
        """In a child made by fork: lets go of the parent's browser without touching it."""
        self.lock = threading.RLock()
        self.broken = "the browser belongs to the process that this one was forked from; call reset()"
        self.tabs.clear()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()  # nothing is written; the parent's end stays open


class Tab:
    """A window in a user context of its own. Its methods raise `EnvFault` if the browser fails.

    Args:
        browser: With the window in it.
        context: The driver's name of the user context.
        handle: The driver's name of the window.
    """

    def __init__(self, browser: Chromium, context: str, handle: str) -> None:
        self.browser, self._context, self._handle = browser, context, handle

    @contextmanager
    def driver(self, purpose: str) -> Iterator[Any]:
        """The driver, its commands going to this tab, and nobody else's commands in between.

        Args:
            purpose: For the message if one fails.

        Yields:
            Selenium's driver.

        Raises:
            EnvFault: If one fails.
        """
        with self.browser.commands(purpose):
            self.browser.select(self._handle)
            yield self.browser.driver

    def close_others(self) -> bool:
        """Closes the windows that nobody here has opened, and says whether there were any.

        Returns:
            True where there were any.
        """
        with self.driver("look for windows") as driver:
            known = {self.browser.home, *(tab._handle for tab in self.browser.tabs)}
            others = [handle for handle in driver.window_handles if handle not in known]
            for handle in others:
                self.browser.select(handle)
                driver.close()
            return bool(others)

    def insert_text(self, text: str) -> None:
        """Enters a text where the cursor is, all at once; keys cannot be meant by it.

        Args:
            text: Any text.
        """
        with self.driver("type") as driver:
            driver.execute("executeCdpCommand", {"cmd": "Input.insertText", "params": {"text": text}})

    def screenshot(self) -> bytes:
        """What the window shows, as PNG.

        Returns:
            The bytes of the file.
        """
        with self.driver("take a screenshot") as driver:
            return base64.b64decode(driver.get_screenshot_as_base64())

    def close(self) -> None:
        """Closes the tab with all that its context kept; a browser that fails at it is ended."""
        with suppress(EnvFault), self.browser.commands("close a tab"):
            if self in self.browser.tabs:
                self.browser.tabs.discard(self)
                self.browser.select(self.browser.home)
                self.browser.driver.browser.remove_user_context(user_context=self._context)


def _refuse_downloads(driver: Any, context: str) -> None:
    """The second bar to downloads, beside the one in the profile's preferences."""
    driver.browser.set_download_behavior(allowed=False, user_contexts=[context])


def _network_flags(port: int) -> list[str]:
    """The rule that nothing but the site can be reached: all else goes to a proxy at a port where nothing listens."""
    return [
        "--proxy-server=http://127.0.0.1:9",
        f"--proxy-bypass-list=<-loopback>;127.0.0.1:{port}",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]


def _client_config(address: str, timeout: float) -> Any:
    """How the driver is spoken to: directly whatever proxies the environment names, each command once, and an answer looked for every 2 ms."""
    from selenium.webdriver.common.proxy import Proxy
    from selenium.webdriver.remote.client_config import ClientConfig

    return ClientConfig(
        remote_server_addr=address,
        timeout=timeout,  # type: ignore[arg-type]  # declared a whole number, used as any
        proxy=Proxy({"proxyType": "direct"}),
        websocket_timeout=timeout,
        websocket_interval=0.002,
        init_args_for_pool_manager={"init_args_for_pool_manager": {"retries": False}},
    )


@contextmanager
def _without_goodbye(driver: Any) -> Iterator[None]:
    """Around the end of a driver: waits for the thread that listens to it, whose complaint that the line is dead is not news here."""
    thread = getattr(getattr(driver, "_websocket_connection", None), "_ws_thread", None)
    log = logging.getLogger("websocket")

    def is_news(record: logging.LogRecord) -> bool:
        return record.thread != getattr(thread, "ident", None)

    log.addFilter(is_news)
    try:
        yield
        if thread is not None:
            thread.join(_GRACE)
    finally:
        log.removeFilter(is_news)


class _Pool:
    """The site and the browsers of this process, and who uses them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: set[object] = set()
        self.gone: list[object] = []
        self.tabs: dict[object, Tab] = {}
        self.site: Site | None = None
        self.current: dict[BrowserOptions, Chromium] = {}
        self.browsers: list[Chromium] = []

    def open_tab(self, user: object, options: BrowserOptions) -> tuple[Tab, Site]:
        with self.lock:
            self.users.add(user)
            self._sweep()
            self._close_tab(user)
            if self.site is None:
                self.site = Site()
            browser = self.current.get(options)
            if browser is None or browser.broken or browser.episodes >= options.episodes_per_browser:
                browser = self.current[options] = Chromium(options, self.site.port)
                self.browsers.append(browser)
                browser.start()
                self._retire()
            tab = self.tabs[user] = browser.open_tab()
            return tab, self.site

    def leave(self, user: object) -> None:
        with self.lock:
            self.users.discard(user)
            self._close_tab(user)
            self._sweep()
            if not self.users:
                self.close()

    def abandon(self, user: object) -> None:
        """A front end was collected without being closed. Nothing waits here: the tab is closed when next something is done, or all of it now if it was the last."""
        if user in self.users:
            self.gone.append(user)
            if self.users <= set(self.gone):
                self.leave(user)

    def close(self) -> None:
        with self.lock:
            for browser in self.browsers:
                browser.close()
            if self.site is not None:
                self.site.close()
            self.tabs.clear()
            self.users.clear()
            self.gone.clear()
            self.current.clear()
            self.browsers.clear()
            self.site = None

    def _close_tab(self, user: object) -> None:
        if (tab := self.tabs.pop(user, None)) is not None:
            tab.close()
            self._retire()

    def _sweep(self) -> None:
        while self.gone:
            user = self.gone.pop()
            self.users.discard(user)
            self._close_tab(user)

    def _retire(self) -> None:
        """Ends the browsers that were replaced and show nothing any more."""
        for browser in [each for each in self.browsers if not each.tabs and each is not self.current.get(each.options)]:
            browser.close()
            self.browsers.remove(browser)


_pool = _Pool()
"""The browsers of this process; a child made by fork begins with none."""


def open_tab(user: object, options: BrowserOptions) -> tuple[Tab, Site]:
    """Gives a front end a new tab, in place of the one it had.

    Args:
        user: Who asks; the same object for all tabs of a front end.
        options: How the browser is run.

    Returns:
        The tab, and the site that it can reach.

    Raises:
        EnvFault: If the browser fails, or does not start.
    """
    return _pool.open_tab(user, options)


def leave(user: object) -> None:
    """Closes a front end's tab, and with the last front end browser and site; may be called twice.

    Args:
        user: As given to `open_tab`.
    """
    _pool.leave(user)


def close_all() -> None:
    """Ends the site and all browsers of this process; front ends that are in use start new ones at their next reset."""
    _pool.close()


def leave_when_collected(front_end: object, user: object) -> None:
    """Sees to it that a front end that nobody closes leaves with its last reference."""
    weakref.finalize(front_end, _abandon, user).atexit = False


def _abandon(user: object) -> None:
    _pool.abandon(user)


def _after_fork() -> None:
    global _pool
    parents, _pool = _pool, _Pool()
    for browser in parents.browsers:
        browser.forget()
    if parents.site is not None:
        parents.site.forget()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)

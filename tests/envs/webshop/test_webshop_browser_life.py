"""How browsers come and go: killed ones, hanging pages, forks, the end of the interpreter, and that nothing piles up."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_help import browser_of, driver_of, kill, nasty_shop, processes, require_browser, wait_until
from gymnasium.vector import AsyncVectorEnv

from agent_gym.core import EnvFault
from agent_gym.envs.webshop import Session, Shop, chromium
from agent_gym.envs.webshop.browser import BrowserFrontEnd
from agent_gym.envs.webshop.env import WebShopEnv
from agent_gym.envs.webshop.experts import random_shopper
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

require_browser()

_TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return nasty_shop(tmp_path_factory.mktemp("nasty"))


@pytest.fixture
def show(shop: Shop) -> Iterator[Callable[..., BrowserFrontEnd]]:
    opened: list[BrowserFrontEnd] = []

    def make(session: Session | None = None, **options: Any) -> BrowserFrontEnd:
        opened.append(BrowserFrontEnd(session or Session(shop), **options))
        return opened[-1]

    yield make
    for front in opened:
        front.close()


def folder_of(front: BrowserFrontEnd) -> Path:
    assert front._tab is not None
    return front._tab.browser.folder


def gone(folder: Path) -> bool:
    return not folder.exists() and not processes(folder)


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize("victim", [browser_of, driver_of])
def test_a_killed_browser_or_driver_ends_the_episode_and_the_next_visit_begins(show: Any, victim: Callable[[Path], int]) -> None:
    front = show()
    front.start(0)
    front.act("search[mug]")
    folder = folder_of(front)
    kill(victim(folder))
    with pytest.raises(EnvFault, match="the browser"):
        for _ in range(3):
            front.act("click[next >]")
    assert wait_until(lambda: gone(folder))
    assert front.start(1) == front.session.observation()
    kill(victim(folder_of(front)))
    assert front.start(0) == front.session.observation()  # killed between two visits: nobody notices


def test_a_page_that_hangs_meets_the_limit_and_the_next_visit_begins(show: Any, shop: Shop) -> None:
    wake = threading.Event()

    class Hanging(Session):
        def html(self, target: str = "") -> str:
            if self.visit.page == "search_results":
                wake.wait(60)
            return super().html(target)

    front = show(Hanging(shop), step_timeout=3.0)
    front.start(0)
    begin = time.monotonic()
    with pytest.raises(EnvFault):
        front.act("search[mug]")
    assert time.monotonic() - begin < 50
    assert front.start(0) == front.session.observation()
    wake.set()


def test_the_environment_in_the_browser_is_the_one_in_text() -> None:
    """Ids, rewards, ends and info, along an expert's visit, a random one, and commands that are none."""
    browser, text = (WebShopEnv(level="small", browser=here, action_format="line") for here in (True, False))
    try:
        for seed, player in ((0, None), (1, random_shopper(1)), (2, lambda env, turn: f"click[nothing {turn}]")):
            (ids, info), (ids_, info_) = (env.reset(seed=seed) for env in (browser, text))
            expert, turn, over = text.expert(), 0, False
            while not over and turn < 8:
                assert ids.tolist() == ids_.tolist()
                assert {**info, "front_end": ""} == {**info_, "front_end": ""} and info["front_end"] != info_["front_end"]
                command = expert() if player is None else player(text, turn)
                action = text.encode_action(command)
                (ids, *ended, info), (ids_, *ended_, info_) = browser.step(action), text.step(action)
                assert ended == ended_
                over, turn = bool(ended[1] or ended[2]), turn + 1
            assert over or player is not None
    finally:
        browser.close()
        text.close()


@pytest.mark.slow
def test_it_conforms_in_the_browser() -> None:
    """What a front end could spoil. Every environment here starts a browser; what both front ends share is checked without one (test_webshop_env.py)."""
    checks = ("gymnasium_api", "ends_apart", "reset_leak", "expert_succeeds", "token_exactness")  # and what these need
    report = check_agent_env("AgentR1/WebShop-v0", checks=checks, kwargs={"level": "small", "browser": True, "action_format": "line"})
    report.raise_if_failed()


def test_the_environment_reports_the_fault_and_goes_on() -> None:
    env = WebShopEnv(level="small", browser=True, render_mode="rgb_array", action_format="line")
    try:
        env.reset(seed=1)
        picture = env.render()
        assert picture.dtype == "uint8" and picture.shape[2] == 3
        kill(browser_of(folder_of(env._front)))  # type: ignore[arg-type]
        info: dict[str, Any] = {}
        for _ in range(3):
            *_, terminated, truncated, info = env.step(env.encode_action("search[a]"))
            if truncated:
                break
        assert info["stop_reason"] is StopReason.ENV_FAULT and not terminated
        env.reset(seed=1)
        *_, truncated, info = env.step(env.encode_action("search[a]"))
        assert info["action_valid"] and not truncated
    finally:
        env.close()


# ------------------------------------------------------------------------------------------------ nothing stays behind


def test_closing_leaves_nothing_and_the_front_end_can_be_used_again(show: Any) -> None:
    threads = threading.active_count()
    front, other = show(), show()
    front.start(0)
    other.start(1)
    folder = folder_of(front)
    assert folder == folder_of(other)  # one browser serves both
    assert len(processes(folder)) >= 4
    front.close()
    assert other.act("search[mug]").valid
    other.close()
    other.close()
    assert gone(folder)
    assert threading.active_count() == threads
    front.start(0)
    assert front.act("search[mug]").valid


def test_a_front_end_that_nobody_closes_leaves_nothing_once_it_is_collected(shop: Shop) -> None:
    front: BrowserFrontEnd | None = BrowserFrontEnd(Session(shop))
    assert front is not None
    front.start(0)
    folder = folder_of(front)
    front = None
    gc.collect()
    assert wait_until(lambda: gone(folder))


_PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from browser_help import nasty_shop
from agent_gym.envs.webshop import Session
from agent_gym.envs.webshop.browser import BrowserFrontEnd
front = BrowserFrontEnd(Session(nasty_shop(Path(sys.argv[3]))))
front.start(0)
print(front._tab.browser.folder, flush=True)
sys.stdin.read(1)
"""


@pytest.mark.parametrize("how", ["exit", signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_interpreter_leaves_nothing(how: str | signal.Signals, tmp_path: Path) -> None:
    here = [str(Path(__file__).parent), str(_TESTS), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(_TESTS.parent)}
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *here], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )  # fmt: skip
    try:
        assert program.stdout is not None
        line = program.stdout.readline().strip()
        folder = Path(line)
        assert line and folder.is_dir() and len(processes(folder)) >= 4
        if isinstance(how, signal.Signals):
            program.send_signal(how)
        _, errors = program.communicate("x" if how == "exit" else None, timeout=60)
        assert errors == "" or how != "exit"
        assert wait_until(lambda: gone(folder))
    finally:
        program.kill()
        program.communicate()


def test_a_browser_is_replaced_after_its_episodes_and_the_old_one_ends_with_its_last_visit(show: Any) -> None:
    first, second = show(episodes_per_browser=2), show(episodes_per_browser=2)
    first.start(0)
    second.start(0)
    old = folder_of(first)
    second.start(0)
    new = folder_of(second)
    assert new != old
    assert first.act("search[mug]").valid
    first.start(0)
    assert folder_of(first) == new and gone(old)


def _count(folder: Path) -> dict[str, int]:
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "processes": len(processes(folder)),
        "entries": len(list(folder.glob("*"))),
        "tabs": len(chromium._pool.tabs),
        "visits": len(chromium._pool.site._server.stalls) if chromium._pool.site else 0,
    }


def _browser_memory(folder: Path) -> float:
    """MiB that the browser's processes have for themselves and in shares."""
    total = 0
    for pid in processes(folder):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


@pytest.mark.slow
def test_fifty_episodes_leave_threads_files_processes_and_memory_flat(show: Any) -> None:
    front = show()
    for episode in range(50):
        front.start(episode % 8)
        front.act("search[mug]")
        front.act("click[back to search]")
        if episode == 9:
            before, memory, browser_memory = (
                _count(folder_of(front)),
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                _browser_memory(folder_of(front)),
            )
    after = _count(folder_of(front))
    for name, most in {"threads": 3, "files": 4, "processes": 3, "entries": 6, "tabs": 0, "visits": 0}.items():
        assert after[name] <= before[name] + most, (name, before, after)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss <= memory + 20 * 1024
    assert _browser_memory(folder_of(front)) <= browser_memory * 1.25 + 60


# ------------------------------------------------------------------------------------------------ other processes


def _make() -> WebShopEnv:
    return WebShopEnv(level="small", browser=True, action_format="line")


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_environments_in_worker_processes_have_browsers_of_their_own(context: str, show: Any) -> None:
    parents = show()
    parents.start(0)
    folder = folder_of(parents)
    vector = AsyncVectorEnv([_make, _make], context=context, shared_memory=False)
    try:
        _, infos = vector.reset(seed=3)
        assert list(infos["has_search_bar"]) == [True, True]
        assert parents.act("search[mug]").valid
    finally:
        vector.close()
    assert parents.act("click[back to search]").valid
    assert folder.exists()


def test_a_child_made_by_fork_does_not_touch_its_parents_browser(show: Any) -> None:
    front = show()
    front.start(0)
    front.act("search[mug]")
    folder = folder_of(front)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                front.act("click[next >]")
            except EnvFault as fault:
                code = 0 if "forked" in str(fault) else 2
            if code == 0:
                front.start(0)
                code = 0 if front.act("search[mug]").valid and folder_of(front) != folder else 3
            front.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folder.exists()
    assert front.act("click[next >]").valid
    front.close()
    assert gone(folder)


# ------------------------------------------------------------------------------------------------ what is missing


def test_without_selenium_the_error_names_the_extra(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "selenium", None)
    with pytest.raises(ImportError, match=r'pip install "agentr1-gym\[browser\]"'):
        BrowserFrontEnd(Session(shop))


def test_without_chromium_or_its_driver_the_error_names_the_packages(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"/nowhere/chromium cannot be found.*apt-get install chromium chromium-driver"):
        BrowserFrontEnd(Session(shop), chrome_binary="/nowhere/chromium")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install chromium chromium-driver"):
        BrowserFrontEnd(Session(shop))


def test_a_window_needs_a_display(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(RuntimeError, match="no display"):
        BrowserFrontEnd(Session(shop), headless=False)


@pytest.mark.parametrize("options", [{"step_timeout": 0}, {"window_size": (0, 1)}, {"window_size": (1, 2, 3)}, {"episodes_per_browser": 0}])
def test_options_out_of_range_are_refused(shop: Shop, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        BrowserFrontEnd(Session(shop), **options)


def test_only_root_runs_without_the_sandbox(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    class Options:
        def __init__(self) -> None:
            self.flags: list[str] = []

        def add_argument(self, flag: str) -> None:
            self.flags.append(flag)

        def add_experimental_option(self, name: str, value: Any) -> None:
            pass

    for uid, without in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        browser = chromium.Chromium(chromium.BrowserOptions(), 1)
        assert ("--no-sandbox" in browser._driver_options(Options()).flags) is without
        assert ("sandbox" in BrowserFrontEnd(Session(shop)).description) is without
        browser.close()
        assert not browser.folder.exists()

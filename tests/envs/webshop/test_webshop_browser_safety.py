"""What pages cannot do in the browser. Beside every protection stands its control: with that one off, the same page does the harm."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_help import altered, another_server, nasty_shop, require_browser, wait_until

from agent_gym.core import EnvFault
from agent_gym.envs.webshop import Session, Shop, browser, chromium, pages, site
from agent_gym.envs.webshop.browser import BrowserFrontEnd
from agent_gym.envs.webshop.chromium import Tab

require_browser()

_NAVIGATION_FAILED = "ERR_PROXY_CONNECTION_FAILED"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return nasty_shop(tmp_path_factory.mktemp("nasty"))


@pytest.fixture(scope="module")
def _kept(shop: Shop) -> Iterator[BrowserFrontEnd]:
    kept = BrowserFrontEnd(Session(shop))
    kept.start(0)
    yield kept
    kept.close()


@pytest.fixture
def front(shop: Shop, _kept: BrowserFrontEnd) -> Iterator[BrowserFrontEnd]:
    """A front end in the browser that the tests of this module share."""
    made = BrowserFrontEnd(Session(shop))
    yield made
    made.close()


@pytest.fixture
def unprotected(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a front end in a browser of its own, after a protection of the browser was taken away."""
    opened: list[BrowserFrontEnd] = []

    def make(**without: Any) -> BrowserFrontEnd:
        for name, value in without.items():
            monkeypatch.setattr(chromium, name, value)
        opened.append(BrowserFrontEnd(Session(shop), step_timeout=60.25))  # other options, so another browser
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def run(front: BrowserFrontEnd, script: str, *arguments: Any) -> Any:
    """Runs a script in the page as the driver does, which no policy of the page holds back: the worst that a page could do if it could run one."""
    with front._driver("test") as driver:
        return driver.execute_script(script, *arguments)


def inject(front: BrowserFrontEnd, markup: str) -> None:
    """Lets the pages of the visits that follow hold a piece of markup, as if nothing were escaped."""
    front.session = altered(lambda page: page.replace("</form>", f"</form>{markup}"))(front.session.shop)


# ------------------------------------------------------------------------------------------------ it never leaves its origin


def leave_for(front: BrowserFrontEnd, port: int) -> str:
    """A page sends the tab to another port of this machine; returns what the front end says about it."""
    inject(front, f'<meta http-equiv="refresh" content="0;url=http://127.0.0.1:{port}/elsewhere">')
    try:
        front.start(0)
        assert wait_until(lambda: "127.0.0.1" not in (place := run(front, "return location.href")) or f":{port}/" in place, 10)
        time.sleep(0.3)
        return front.act("look around").observation
    except EnvFault as fault:
        return f"fault: {fault}"


def test_another_port_of_this_machine_is_out_of_reach_and_the_attempt_ends_the_episode(front: BrowserFrontEnd) -> None:
    with another_server() as (port, asked):
        assert leave_for(front, port).startswith("fault: the browser left the shop")
        assert asked == []


def test_control_without_the_proxy_rule_the_other_port_is_reached(unprotected: Any) -> None:
    with another_server() as (port, asked):
        said = leave_for(unprotected(_network_flags=lambda port: []), port)
        assert asked[:1] == ["/elsewhere"]
        assert said.startswith("fault: the browser left the shop for 'http://127.0.0.1")  # the other protection still holds


def test_control_without_the_check_the_foreign_page_is_what_is_observed(unprotected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "_is_ours", lambda place, address: True)
    with another_server() as (port, _):
        assert leave_for(unprotected(_network_flags=lambda port: []), port) == "elsewhere"


@pytest.mark.parametrize("address", ["http://localhost:{port}/", "http://[::1]:{port}/", "http://0.0.0.0:{port}/", "http://example.com/"])
def test_no_other_name_leads_anywhere_not_even_to_our_own_port(front: BrowserFrontEnd, address: str) -> None:
    front.start(0)
    assert front._site is not None
    with pytest.raises(EnvFault, match=f"{_NAVIGATION_FAILED}|ERR_NAME_NOT_RESOLVED"), front._driver("go") as driver:
        driver.get(address.format(port=front._site.port))


# ------------------------------------------------------------------------------------------------ it never downloads

_DOWNLOAD = "const a = document.createElement('a'); a.href = 'data:application/octet-stream,harm'; a.download = 'harm.bin'; document.body.append(a); a.click()"


def downloaded(front: BrowserFrontEnd, elsewhere: Path, seconds: float) -> bool:
    front.start(0)
    assert front._tab is not None
    folders = (front._tab.browser.folder, elsewhere)
    run(front, _DOWNLOAD)
    return wait_until(
        lambda: any("harm" in file.name or file.suffix == ".crdownload" for folder in folders for file in folder.rglob("*")), seconds
    )


def test_nothing_is_downloaded(front: BrowserFrontEnd, tmp_path: Path) -> None:
    assert not downloaded(front, tmp_path, 4)


def allowed_into(folder: Path) -> Any:
    def allow(driver: Any, context: str) -> None:
        driver.browser.set_download_behavior(allowed=True, destination_folder=str(folder), user_contexts=[context])

    return allow


@pytest.mark.parametrize("other", ["profile", "visit"])
def test_each_of_the_two_bars_holds_alone(unprotected: Any, tmp_path: Path, other: str) -> None:
    without = {"_PREFERENCES": {}} if other == "profile" else {"_refuse_downloads": lambda driver, context: None}
    assert not downloaded(unprotected(**without), tmp_path, 4)


def test_control_without_the_two_bars_the_file_arrives(unprotected: Any, tmp_path: Path) -> None:
    assert downloaded(unprotected(_PREFERENCES={}, _refuse_downloads=allowed_into(tmp_path)), tmp_path, 30)


# ------------------------------------------------------------------------------------------------ it runs no script of a page

_SCRIPTS = (
    '<script>document.documentElement.dataset.ran = "inline"</script>',
    '<img src="data:," onerror="document.documentElement.dataset.ran = 1">',
    "<input autofocus onfocus=\"document.documentElement.dataset.ran = 'handler'\">",
    "<a id=\"link\" href=\"javascript:void(document.documentElement.dataset.ran = 'link')\">x</a>",
    '<iframe src="javascript:parent.document.documentElement.dataset.ran = 1"></iframe>',
    '<svg onload="document.documentElement.dataset.ran = 1"></svg>',
)  # fmt: skip


def ran(front: BrowserFrontEnd, markup: str) -> bool:
    inject(front, markup)
    front.start(0)
    run(front, "const link = document.getElementById('link'); if (link) link.click()")
    return wait_until(lambda: bool(run(front, "return document.documentElement.dataset.ran || ''")), 1.0)


@pytest.mark.parametrize("markup", _SCRIPTS)
def test_no_script_of_a_page_runs(front: BrowserFrontEnd, markup: str) -> None:
    assert not ran(front, markup)


@pytest.mark.parametrize("markup", _SCRIPTS)
def test_control_without_the_policy_it_runs(front: BrowserFrontEnd, markup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(site.HEADERS, "Content-Security-Policy")
    assert ran(front, markup)


# ------------------------------------------------------------------------------------------------ it closes windows


def windows(front: BrowserFrontEnd) -> int:
    """How many there are after a page has opened one and the agent has acted."""
    inject(front, '<a id="link" target="_blank" href="?">more</a>')
    front.start(0)
    with front._driver("count") as driver:
        before = len(driver.window_handles)
        driver.execute_script("document.getElementById('link').click()")
        assert wait_until(lambda: len(driver.window_handles) == before + 1)
    front.act("look around")
    assert front.act("search[mug]").valid
    with front._driver("count") as driver:
        return len(driver.window_handles) - before


def test_windows_that_a_page_opens_are_closed(front: BrowserFrontEnd) -> None:
    assert windows(front) == 0


def test_control_without_that_they_stay(front: BrowserFrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Tab.close_others
    monkeypatch.setattr(Tab, "close_others", lambda self: False)
    assert windows(front) == 1
    monkeypatch.setattr(Tab, "close_others", keep)
    front.act("look around")


def test_a_move_that_went_to_another_window_is_shown_in_ours(front: BrowserFrontEnd) -> None:
    front.session = altered(lambda page: page.replace('name="press"', 'name="press" formtarget="_blank"'))(front.session.shop)
    front.start(0)
    front.act("search[mug]")
    turn = front.act("click[next >]")
    assert turn.valid and "Page 2" in turn.observation
    assert turn.observation == front.session.observation()


# ------------------------------------------------------------------------------------------------ it escapes


def foreign_elements(front: BrowserFrontEnd) -> list[str]:
    """The elements of a hostile product's pages that our pages do not have."""
    front.start(0)
    names = set()
    for action in ("search[nasty]", "click[d000000001]", "click[features]"):
        front.act(action)
        names |= set(run(front, "return Array.from(document.querySelectorAll('*'), (element) => element.localName)"))
    assert front.session.visit.sub_page == "Features"
    return sorted(names - {"html", "head", "meta", "title", "style", "body", "form", "p", "button"})


def test_texts_make_no_elements(front: BrowserFrontEnd) -> None:
    assert foreign_elements(front) == []


def test_control_without_escaping_they_do(front: BrowserFrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "escape", lambda text: text)
    front.start(0)
    front.session.act("search[nasty]")
    front.session.act("click[d000000001]")
    front._load()
    assert "img" in run(front, "return Array.from(document.querySelectorAll('*'), (element) => element.localName)")


# ------------------------------------------------------------------------------------------------ the site


def ask(front: BrowserFrontEnd, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], str]:
    assert front._site is not None
    connection = http.client.HTTPConnection("127.0.0.1", front._site.port, timeout=10)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_site_answers_get_at_its_own_name_and_the_visits_address_alone(
    front: BrowserFrontEnd, capfd: pytest.CaptureFixture[str]
) -> None:
    front.start(0)
    assert front._site is not None and front._stall is not None
    path, port = f"/{front._stall.token}/", front._site.port
    status, headers, page = ask(front, path)
    assert status == 200 and page == front.session.html()
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
    for host in (f"localhost:{port}", "127.0.0.1", f"evil.example:{port}", "", f"127.0.0.1:{port + 1}"):
        assert ask(front, path, host=host)[0] == 421, host
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"):
        assert ask(front, path, method)[0] == 405, method
    for other in (
        "/",
        path[:-1],
        f"/{front._stall.token[:-1]}/",
        f"{path}index.html",
        "/favicon.ico",
        "//",
        "/../../etc/passwd",
        "/%2e%2e/",
    ):
        assert ask(front, other)[0] == 404, other
    assert ask(front, f"{path}?search=%ff")[0] == 400
    assert ask(front, f"{path}?search={'a' * 70_000}")[0] == 414
    assert len(front._stall.token) >= 20
    token = front._stall.token
    front.start(0)
    assert front._stall.token != token and ask(front, path)[0] == 404
    assert capfd.readouterr() == ("", "")


def test_a_request_that_the_front_end_did_not_ask_for_moves_nothing(front: BrowserFrontEnd) -> None:
    front.start(0)
    assert front._stall is not None
    path = f"/{front._stall.token}/"
    for query in ("?search=mug", "?press=0", "?press=999999999999", "?press=-1", "?press=a", "?press=%C2%B2"):
        assert ask(front, path + query)[2] == front.session.html()
        assert front.session.visit.page == "index"
    front.act("search[mug]")
    visit = front.session.visit
    run(front, "history.back()")
    front.act("look around")
    assert front.session.visit is visit


def test_the_site_listens_on_this_machine_alone(front: BrowserFrontEnd) -> None:
    front.start(0)
    assert front._site is not None
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert f"0100007F:{front._site.port:04X}" in listening
    assert f"00000000:{front._site.port:04X}" not in listening

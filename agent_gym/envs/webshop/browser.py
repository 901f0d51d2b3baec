"""`BrowserFrontEnd`: the shop in headless Chromium, in place of the engine's strings.

A visit is served by `site` and shown by `chromium`. What is observed comes back from the document alone: one call collects the strings that are visible,
in order, and the controls that are visible and enabled; from these the observation and the names of what can be clicked are made by the very functions
that make them of the engine's page. What is done goes through the page: words are typed into the search box and sent, controls are clicked. The one
exception is a search where the page has no box, which the text environment allows (`strict_search=False`): there the driver opens the site's
address for it, as the box would.

After each action the tab must still show our own address, and windows that appeared are closed. A page that is elsewhere, does not come within
`step_timeout`, or a browser that died, ends the episode (`EnvFault`); the next visit gets a new tab, and a new browser where that is needed.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from agent_gym.core import EnvFault
from agent_gym.envs.webshop import chromium, pages
from agent_gym.envs.webshop.chromium import BrowserOptions, Tab
from agent_gym.envs.webshop.engine import Session, Turn, parse_action
from agent_gym.envs.webshop.goals import Goal
from agent_gym.envs.webshop.pages import CHOSEN, OPTION, PRODUCT, PUSH, VISITED, Part
from agent_gym.envs.webshop.site import Site, Stall

__all__ = ["BrowserFrontEnd"]

_READ = """
const fresh = arguments[0];
if (document.readyState === 'loading' || !document.body || (fresh && window.alreadyRead)) return null;
window.alreadyRead = true;
const shown = (element) => element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
const kinds = ['button', 'product', 'visited', 'option', 'chosen'];
const parts = [], controls = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let last = null;
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  if (element === last) { parts[parts.length - 1][1] += node.data; continue; }
  if (!shown(element)) continue;
  last = element;
  const usable = element.localName === 'button' && element.matches(':enabled') && kinds.includes(element.className);
  parts.push([usable ? element.className : 'text', node.data]);
  controls.push(usable ? element : null);
}
const box = document.querySelector('input[name=search]');
return {place: location.href, parts, controls, box: box && shown(box) && box.matches(':enabled:read-write') ? box : null};
"""


_SEND = """
const [box, words] = arguments;
if (box.value !== words) return false;
box.form.requestSubmit();
return true;
"""


@dataclass(frozen=True, slots=True)
class _Page:
    """What the document shows.

    Attributes:
        place: its address.
        parts: its visible strings with their kinds, in order.
        controls: the element of each part that can be clicked, None for the others.
        box: the search box, or None.
        of: the visit and the goal that were shown when it was read.
    """

    place: str
    parts: list[Part]
    controls: list[Any]
    box: Any
    of: tuple[Any, Goal]


def image_module() -> Any:
    """Return Pillow's `Image` module.

    Returns:
        The module.

    Raises:
        ImportError: without Pillow.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('render_mode="rgb_array" needs Pillow: pip install "agentr1-gym[browser]"') from error
    return Image


class BrowserFrontEnd:
    """Shows a visit in Chromium; see the module.

    Attributes:
        session: the running visit, as the site serves it; each `start` makes a new one.
        options: how the browser is run.
        description: what shows the pages, for info: names a browser without sandbox.
    """

    def __init__(self, session: Session, **options: Any) -> None:
        """Prepares the front end; the browser starts with the first visit.

        Args:
            session: shop and rules.
            **options: see `BrowserOptions`.

        Raises:
            TypeError: for an unknown option.
            ValueError: for an option out of range.
            ImportError: without selenium.
            RuntimeError: without Chromium or its driver, or without a display for `headless=False`.
        """
        if "window_size" in options:
            options["window_size"] = tuple(options["window_size"])
        self.session, self.options = session, BrowserOptions(**options)
        self.options.check()
        self.description = "browser" if chromium.sandboxed() else "browser (run as root: without sandbox)"
        self._user = object()
        self._tab: Tab | None = None
        self._site: Site | None = None
        self._stall: Stall | None = None
        self._page: _Page | None = None
        chromium.leave_when_collected(self, self._user)

    # What is shown.

    def clickables(self) -> list[str]:
        """What can be clicked on the page that is shown; see `Session.clickables`."""
        return pages.clickable_names(self._shown().parts)

    def has_search_bar(self) -> bool:
        """Whether the page that is shown has a search box that can be used.

        Returns:
            True where a `search[...]` would search.
        """
        return self._shown().box is not None

    def screenshot(self) -> npt.NDArray[np.uint8]:
        """What the window shows.

        Returns:
            uint8, shape (height, width, 3); smaller than the window by the browser's own bars.

        Raises:
            ImportError: without Pillow.
            EnvFault: if the browser fails.
        """
        self._shown()
        assert self._tab is not None
        with image_module().open(io.BytesIO(self._tab.screenshot())) as image:
            return np.asarray(image.convert("RGB"))

    def observation(self) -> str:
        """The page that is shown, in the form that the rules ask for; see `Session.observation`."""
        page, mode = self._shown(), self.session.rules.observation_mode
        if mode == "text":
            return pages.as_text(page.parts)
        if mode == "text_rich":
            return pages.as_rich_text(page.parts)
        return pages.as_html(page.parts, has_search_bar=page.box is not None) if mode == "html" else self.session.url

    # What is done.

    def start(self, goal: int | Goal, *, price_upper: float | None = None, prices: Mapping[str, float] | None = None) -> str:
        """Begins a visit in a tab of its own; arguments as for `Session.start`.

        Args:
            goal: as for `Session.start`.
            price_upper: as for `Session.start`.
            prices: as for `Session.start`.

        Returns:
            The first observation.

        Raises:
            EnvFault: if no browser can be started.
        """
        self._drop()
        self.session = type(self.session)(self.session.shop, self.session.rules)  # what still hangs in an old request moves an old visit
        self.session.start(goal, price_upper=price_upper, prices=prices)
        with suppress(EnvFault):  # a browser that has died since the last visit is replaced
            self._open()
        return self.observation()

    def act(self, action: str) -> Turn:
        """Takes an action through the page; see `Session.act`.

        Args:
            action: `search[words]` or `click[name]`; anything else changes nothing.

        Raises:
            EnvFault: if the browser fails or is elsewhere.
        """
        page = self._shown()
        assert self._stall is not None
        name, argument = parse_action(action)
        names = [argument] if name == "click" else []
        if action.startswith("click[") and action.endswith("]"):
            names.append(action[6:-1].lower())  # a name with brackets
        control = next(filter(None, (self._control(page, each) for each in names)), None)
        if name == "search" and argument and (page.box is not None or not self.session.rules.strict_search):
            self._stall.expect_move()
            self._search(page, argument)
        elif control is not None:
            self._stall.expect_move()
            with self._driver("click") as driver:
                driver.execute_script("arguments[0].click()", control)
        else:
            self._look(fresh=False)
            return Turn(self.observation(), valid=False)
        self._look(fresh=True)
        turn = self._stall.turn
        if turn is None:
            raise self._fault(f"the page took no notice of {action!r:.200}")
        return turn._replace(observation=self.observation())

    def close(self) -> None:
        """Closes the tab, and the browser with the last front end; may be called twice, and a later `start` opens it again."""
        self._drop()
        chromium.leave(self._user)

    def _control(self, page: _Page, name: str) -> Any:
        """The element that an action names; where several bear the name, the one that the text environment takes."""
        if name == "search":
            return None
        offered = [(kind, text, control) for (kind, text), control in zip(page.parts, page.controls, strict=True) if control is not None]
        options = [(text, control) for kind, text, control in offered if kind in (OPTION, CHOSEN)]
        named: dict[str, Any] = {}
        visit = self.session.visit
        if options and visit.product is not None:
            product = self.session.shop.catalogue.product(visit.product)
            pairs = [(option, value) for option, values in product.options for value in values if value]
            if len(pairs) == len(options):
                named.update((f"{option}: {value}", control) for (option, value), (_, control) in zip(pairs, options, strict=True))
        named.update(options)
        named.update((text.lower(), control) for kind, text, control in offered if kind in (PUSH, PRODUCT, VISITED))
        return named.get(name)

    def _search(self, page: _Page, words: str) -> None:
        """Types the words and sends them. What a box cannot hold, such as a line break, is sent as the box would send it, if it could."""
        assert self._tab is not None and self._site is not None and self._stall is not None
        with self._driver("search") as driver:
            if page.box is not None and not any("\ud800" <= character <= "\udfff" for character in words):
                driver.execute_script("arguments[0].focus()", page.box)
                self._tab.insert_text(words)
                if driver.execute_script(_SEND, page.box, words):
                    return
            driver.get(f"{self._site.url(self._stall)}?search={quote(words, safe='', errors='surrogatepass')}")

    # How the document is read.

    def _shown(self) -> _Page:
        """The page as it was read; read anew where the visit was moved by someone else, opened where it has no tab."""
        if (
            self._page is None
            or self._tab is None
            or self._page.of[0] is not self.session.visit
            or self._page.of[1] is not self.session.goal
        ):
            if self._tab is None:
                self._open()
            else:
                self._load()
        assert self._page is not None
        return self._page

    def _open(self) -> None:
        """Opens a tab on the visit."""
        self._drop()
        self._tab, self._site = chromium.open_tab(self._user, self.options)
        self._stall = self._site.open(self.session)
        self._load()

    def _load(self) -> None:
        assert self._site is not None and self._stall is not None
        with self._driver("open the page") as driver:
            driver.get(self._site.url(self._stall))
        self._look(fresh=True)

    def _look(self, *, fresh: bool) -> None:
        """Closes the windows that were not there before, and reads the document.

        Args:
            fresh: Whether it must be another document than the one that was read last; it is waited for.

        Raises:
            EnvFault: if it does not come, or is not ours.
        """
        assert self._tab is not None and self._site is not None and self._stall is not None
        address, limit, pause = self._site.url(self._stall), time.monotonic() + self.options.step_timeout, 0.002
        while True:
            with self._driver("look for windows"):
                intruded = self._tab.close_others()
            with self._driver("read the page") as driver:
                if intruded and fresh:  # the move may have gone to the other window
                    driver.get(address)
                read = driver.execute_script(_READ, fresh)
            if self._stall.error is not None:
                error = self._stall.error
                self._drop()
                raise error
            if read is not None:
                break
            if time.monotonic() > limit:
                raise self._fault(f"the page did not come within {self.options.step_timeout:g} seconds")
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        if not _is_ours(read["place"], address):
            raise self._fault(f"the browser left the shop for {read['place']!r:.200}")
        parts = [(kind, text) for kind, text in read["parts"]]
        self._page = _Page(read["place"], parts, read["controls"], read["box"], (self.session.visit, self.session.goal))

    @contextmanager
    def _driver(self, purpose: str) -> Iterator[Any]:
        """The driver, for commands to this tab; if one fails, the visit has no tab any more."""
        assert self._tab is not None
        try:
            with self._tab.driver(purpose) as driver:
                yield driver
        except EnvFault:
            self._drop()
            raise

    def _fault(self, message: str) -> EnvFault:
        """Takes the visit off the screen, and gives the fault to raise."""
        self._drop()
        return EnvFault(message)

    def _drop(self) -> None:
        """Takes the visit off the site and closes its tab."""
        if self._site is not None and self._stall is not None:
            self._site.remove(self._stall)
        if self._tab is not None:
            self._tab.close()
        self._tab = self._site = self._stall = self._page = None


def _is_ours(place: str, address: str) -> bool:
    """Whether a tab that shows `place` is still at the visit's address."""
    return place == address or place.startswith(f"{address}?")

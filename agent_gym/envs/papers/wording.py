"""How papers, calls and results are printed.

Titles and abstracts are text of the world: each is put on one line, so that none can print the line of another paper, and cut, and answer tags in it are
escaped, so that a reply that copies it ends nothing. Control tokens in it are the chat's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_gym.envs.papers.pool import Found
from agent_gym.envs.papers.tools import Lookup

__all__ = ["action_line", "listing", "paper_text", "plain"]

_TITLE = 300  # characters of a title
_QUERY = 120  # characters of a query or id
_WORD = 12  # characters of a word on average at most, where an abstract is cut by words
_LADDER = (60, 30, 15, 0)
"""Words of an abstract in a list of results, the first that leaves room for all."""


def plain(text: str, length: int | None = None) -> str:
    """Return text on one line, cut, without answer tags.

    Args:
        text: of the world.
        length: characters at most, with a mark behind them; None for all.

    Returns:
        The text.
    """
    line = " ".join(text.split())
    if length is not None and len(line) > length:
        line = f"{line[:length].rstrip()}..."
    return line.replace("<answer>", "&lt;answer>").replace("</answer>", "&lt;/answer>")


def _abstract(text: str, words: int) -> str:
    if not words:
        return ""
    kept = text.split(maxsplit=words)
    cut = " ".join(kept[:words])
    return plain(f"{cut}..." if len(kept) > words else cut, words * _WORD)


def paper_text(one: Found, words: int) -> str:
    """Print a paper: its id, score, whether it was expanded, title and year, and its abstract on the next line.

    Args:
        one: of the pool.
        words: where the abstract is cut; 0 leaves it out.

    Returns:
        One line or two.
    """
    year = f" ({one.paper.year})" if one.paper.year else ""
    head = f"[{plain(one.paper.id, _QUERY)}] ({one.score:.2f}) {'EXP' if one.expanded else 'NEW'} {plain(one.paper.title, _TITLE)}{year}"
    abstract = _abstract(one.paper.abstract, words)
    return f"{head}\n{abstract}" if abstract else head


def action_line(lookup: Lookup, new: int | None, *, known: bool = True) -> str:
    """Say what a call did.

    Args:
        lookup: what it found.
        new: papers that are new in the pool; None for a repetition.
        known: whether there was something to look up.

    Returns:
        One line.
    """
    what = plain(lookup.origin, _QUERY)
    call = f'search "{what}"' if lookup.source == "search" else f"expand {what}"
    if not known:
        return f"{call}: no such paper was found yet"
    if new is None:
        return f"{call}: done before, nothing new"
    count = len(lookup.papers)
    return f"{call}: {count} {'paper' if count == 1 else 'papers'}, {new} new"


def listing(line: str, papers: Sequence[Found], new: Sequence[Found], words: int, fits: Callable[[str], bool]) -> str:
    """Print the result of a call.

    Args:
        line: what it did.
        papers: that it found, in its order.
        new: those that were not in the pool; others are named by their id alone.
        words: of an abstract at most.
        fits: whether a text is short enough to be shown whole.

    Returns:
        The text, with as much of the abstracts as leaves room for all papers.
    """
    fresh = set(map(id, new))
    text = line
    for most in _LADDER:
        shown = min(most, words)
        text = "\n".join(
            [line, *(paper_text(one, shown) if id(one) in fresh else f"[{plain(one.paper.id, _QUERY)}] found before" for one in papers)]
        )
        if fits(text):
            break
    return text

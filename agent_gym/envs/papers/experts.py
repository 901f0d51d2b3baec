"""Who can search for papers: the expert that imitation learns from, and three baselines.

All of them are functions of the present state, so they can be asked anywhere, after the model's mistakes too. The expert knows the gold papers; it searches
the question's own words, and expands found papers along the shortest ways through the citations to what is missing, so that what it does can be learned from what
is shown. Behind a server, where looking costs requests, it searches the question and then the titles of what is missing.

The baselines know what is shown: `search_only` never expands, `expand_best` expands the best paper again and again, `random_reader` does either at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_gym.data.papers import Paper
from agent_gym.envs.papers.pool import plain_query

if TYPE_CHECKING:
    from agent_gym.envs.papers.env import PaperSearchEnv

__all__ = ["Script", "expand_best", "next_reply", "random_reader", "search_only"]

Script = Callable[[Any, int], str]
"""(unwrapped environment, turn counted from 0) -> the text of the reply; what `ScriptedPolicy` takes."""

Call = tuple[str, Mapping[str, Any]]

_FINISH: Call = ("finish", {})
_FAR = 3
"""Expansions that the expert makes one after the other to reach a paper, at most."""
_SEEN = 5_000
"""Papers that it looks at for that, at most."""


def _search(query: str) -> Call:
    return "search", {"query": query}


def _expand(paper_id: str) -> Call:
    return "expand", {"paper_id": paper_id}


def _words(text: str) -> str:
    """A query that every format of calls can hold: on one line, without what markup is made of."""
    return " ".join(text.translate(dict.fromkeys(map(ord, '<>[]{}|"'), " ")).split())


# ---------------------------------------------------------------------------------------------------- the expert


def next_reply(env: PaperSearchEnv) -> str:
    """Return the expert's next reply.

    Args:
        env: a running episode.

    Returns:
        The text; in the last turn it also finishes.
    """
    last = env.turn >= env.max_turns - 1
    room = env.max_parallel_calls - (1 if last and env.max_parallel_calls > 1 else 0)
    calls = _useful(env)[:room]
    if not calls or (last and len(calls) < env.max_parallel_calls):
        calls.append(_FINISH)
    return env.write_calls(calls) or env.write_calls([_FINISH])


def _useful(env: PaperSearchEnv) -> list[Call]:
    """What brings gold papers, or brings the expert nearer to them."""
    missing = [paper_id for paper_id in env.query.gold if paper_id not in env.pool]
    if not missing:
        return []
    question = _words(env.query.question)
    first = [_search(question)] if plain_query(question) not in env.pool.queries else []
    if first and not env.pool.found:
        return first
    ways = [] if env.library.remote else _ways(env, missing)
    if ways:
        return [_expand(paper_id) for paper_id in ways]
    if first:
        return first
    titles = env.query.gold_titles
    wanted = [_words(titles.get(paper_id) or _title(env, paper_id)) for paper_id in missing]
    return [_search(words) for words in dict.fromkeys(wanted) if words and plain_query(words) not in env.pool.queries]


def _title(env: PaperSearchEnv, paper_id: str) -> str:
    corpus = getattr(env.library, "corpus", None)
    paper = None if corpus is None else corpus.get(paper_id)
    return "" if paper is None or not env.bound.allows(paper) else str(paper.title)


def _near(env: PaperSearchEnv, paper: Paper) -> list[Paper]:
    return env.library.neighbours(paper, env.citations_limit, env.references_limit, env.bound)


def _ways(env: PaperSearchEnv, missing: Sequence[str]) -> list[str]:
    """The papers of the pool to expand next: of those that lead to missing papers in the fewest expansions, as few as cover what can be reached so."""
    wanted = set(missing)
    leads: dict[str, set[str]] = {}
    seen = set(env.pool.found)
    front: list[tuple[str, Paper]] = [(one.paper.id, one.paper) for one in env.pool.ranked() if not one.expanded]
    for _ in range(_FAR):
        following: list[tuple[str, Paper]] = []
        for origin, paper in front:
            for near in _near(env, paper):
                if near.id in wanted:
                    leads.setdefault(origin, set()).add(near.id)
                elif near.id not in seen and len(seen) < _SEEN:
                    seen.add(near.id)
                    following.append((origin, near))
        if leads:
            return _cover(leads)
        front = following
    return []


def _cover(leads: Mapping[str, set[str]]) -> list[str]:
    """Greedily as few as cover everything, in the order of the pool among equals."""
    left: set[str] = set().union(*leads.values())
    chosen = []
    while left:
        best = max(leads, key=lambda origin: len(leads[origin] & left))
        chosen.append(best)
        left -= leads[best]
    return chosen


# ---------------------------------------------------------------------------------------------------- baselines


def search_only(env: PaperSearchEnv, turn: int) -> str:
    """Search the question, then the titles of what was found, the best first, and never expand.

    Args:
        env: a running episode.
        turn: from 0.

    Returns:
        The reply.
    """
    if turn == 0:
        return env.write_calls([_search(_words(env.query.question))])
    if turn >= env.max_turns - 1:
        return env.write_calls([_FINISH])
    titles = dict.fromkeys(_words(one.paper.title) for one in env.pool.ranked())
    new = [title for title in titles if title and plain_query(title) not in env.pool.queries]
    return env.write_calls([_search(title) for title in new[: env.max_parallel_calls]] or [_FINISH])


def expand_best(env: PaperSearchEnv, turn: int) -> str:
    """Search the question, then expand the best paper that was not expanded yet, one in each reply.

    Args:
        env: a running episode.
        turn: from 0.

    Returns:
        The reply.
    """
    if turn == 0:
        return env.write_calls([_search(_words(env.query.question))])
    open_ = [one.paper.id for one in env.pool.ranked() if not one.expanded]
    return env.write_calls([_FINISH if turn >= env.max_turns - 1 or not open_ else _expand(open_[0])])


def random_reader(seed: int) -> Script:
    """Return a script that searches the question, then searches a title or expands a paper at random, and stops at random.

    Args:
        seed: of its choices, which depend on it, the task and the turn alone.

    Returns:
        The script.
    """

    def script(env: PaperSearchEnv, turn: int) -> str:
        if turn == 0:
            return env.write_calls([_search(_words(env.query.question))])
        rng = np.random.default_rng([seed, turn, *env.task_id.encode("utf-8", "replace")])
        papers = [one.paper for one in env.pool.ranked()]
        if turn >= env.max_turns - 1 or not papers or rng.random() < 0.1:
            return env.write_calls([_FINISH])
        paper = papers[int(rng.integers(len(papers)))]
        return env.write_calls([_expand(paper.id) if rng.random() < 0.5 else _search(_words(paper.title) or "papers")])

    return script

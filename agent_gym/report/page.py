"""The page: overview, episodes token by token, and two of them side by side. One file that needs no network, no fonts and no library.

`render_page` puts it together. As a file (`write_report`, `write_viewer`, `write_page`) it carries its episodes in blocks behind the script, which reads
each when it is wanted; served (`agent_gym.report.serve`), the same page asks for them. The script stands before the blocks, so that the first paint does
not wait for them. A content security policy lets only this page's own script run (by its hash), so that not even a fault in our escaping could run what a
transcript holds.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_gym.report.curves import asset, learning_curve, learning_curves
from agent_gym.report.episodes import episode_record, episode_summary
from agent_gym.report.markup import Markup, json_script, tag, visible
from agent_gym.report.overview import LETTERS, render_overview
from agent_gym.report.store import EpisodeFile, Source, matching_tokenizer
from agent_gym.report.transcript import pick_pair
from agent_gym.runs import RunFolder, atomic_write
from agent_gym.trajectory import Trajectory

__all__ = [
    "PIECE",
    "learning_curve",
    "learning_curves",
    "render_page",
    "render_report",
    "what_changed",
    "write_page",
    "write_report",
    "write_viewer",
]

PIECE = 200
"""Summaries of episodes that the page reads at a time."""
_SCRIPTS = ("view_data.js", "view_list.js", "view_tokens.js", "view_episode.js", "view_app.js")
_PAIR_FROM = 40
_REPORT_EPISODES = 48
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; connect-src {connect}; base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=1)
def _script() -> str:
    parts = "\n".join(asset(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def content_policy(*, served: bool) -> str:
    """Return the content security policy of the page.

    Args:
        served: it may ask the server that it came from; a file may ask nobody.
    """
    digest = base64.b64encode(hashlib.sha256(_script().encode("utf-8")).digest()).decode("ascii")
    return _POLICY.format(digest=digest, connect="'self'" if served else "'none'")


def render_page(title: str, lead: str, settings: Mapping[str, Any], overview: Markup | None, blocks: Sequence[Markup] = ()) -> str:
    """Return a whole page.

    Args:
        title: of the window and the page.
        lead: below it.
        settings: of the script: `served`, `live`, `every` (milliseconds between two questions), `overview` (token of its state), `runs` (name, letter)
            and `files` (run, name, label, generation, size).
        overview: of the runs, or None where there is no run.
        blocks: of data, behind the script.

    Returns:
        The HTML.
    """
    live = bool(settings.get("live"))
    tabs = [("overview", "Overview")] if overview is not None else []
    tabs += [("episodes", "Episodes"), ("compare", "Side by side")]
    told = {**settings, "first": tabs[0][0]}
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=content_policy(served=bool(settings.get("served")))),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Markup(f"<style>{asset('report.css')}{asset('view.css')}</style>"),
    )
    sign = tag("span", "live", id="live", class_="live", role="status") if live else None
    buttons = [tag("button", words, type="button", data_tab=name) for name, words in tabs]
    main = tag(
        "main",
        tag("header", tag("h1", title), tag("p", lead, " " if live else None, sign, class_="lead") if lead or live else None),
        tag("nav", *buttons, aria_label="parts of this page"),
        tag("noscript", tag("p", "The episodes need JavaScript, which this page carries within it.", class_="empty")),
        tag("section", overview, id="overview", class_="view") if overview is not None else None,
        *[tag("section", id=name, class_="view", hidden=True) for name in ("episodes", "episode", "compare")],
        tag(
            "footer",
            "Written by agent-gym. This page "
            + (
                "comes from this machine and asks no other."
                if settings.get("served")
                else "is one file: it loads nothing and sends nothing."
            ),
        ),
    )
    body = tag("body", main, json_script("view", told), Markup(f"<script>{_script()}</script>"), *blocks)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


# ---------------------------------------------------------------------------------------------------- what changed


def what_changed(source: Source) -> Markup | None:
    """Return the place of two episodes of one task, before and after training: the first whose outcome changed, if there is one.

    Args:
        source: a run.

    Returns:
        The markup, which the script fills; None where nothing was played after training.
    """
    files = {one.path.stem: one for one in source.files()}
    after_file, before_file = files.get("final"), files.get("warm_start") or files.get("before")
    after = _first_episodes(after_file)
    if not after or after_file is None:
        return None
    before = _first_episodes(before_file)
    pair = pick_pair(before, after)
    if pair is None or before_file is None:
        return tag("section", tag("h2", "An episode"), tag("div", _place(after_file, 0, "After training"), class_="single"))
    places = [
        _place(file, episodes.index(one), words)
        for one, episodes, file, words in (
            (pair[0], before, before_file, "Before reinforcement learning"),
            (pair[1], after, after_file, "After"),
        )
    ]
    task = pair[1].task_id or (f"seed {pair[1].seed}" if pair[1].seed is not None else "the same")
    how = "greedy" if pair[1].sampling.get("temperature") == 0 else "sampled"
    lead = f"One held-out task ({task}), {how} before and after. The first on which the outcome changed is shown, if there is one."
    return tag("section", tag("h2", "What changed"), tag("p", lead, class_="sub"), tag("div", *places, class_="pair"))


def _first_episodes(file: EpisodeFile | None) -> list[Trajectory]:
    if file is None:
        return []
    return [file.episode(number) for number in range(len(file.rows(0, _PAIR_FROM)["rows"]))]


def _place(file: EpisodeFile, number: int, words: str) -> Markup:
    return tag("article", tag("h3", words), class_="transcript", data_file=file.path.name, data_n=str(number), data_heading=words)


# ---------------------------------------------------------------------------------------------------- as a file


def title_of(sources: Sequence[Source]) -> tuple[str, str]:
    """Return title and lead of a page.

    Args:
        sources: one or two.
    """
    if len(sources) > 1:
        return "Two runs", " \u00b7 ".join(f"{letter}: {source.name}" for letter, source in zip(LETTERS, sources, strict=False))
    source = sources[0]
    if source.run is None:
        return source.name, ""
    if not source.run.exists:  # training begins this moment
        return f"{source.name}: training report", ""
    config, summary = source.run.config, source.run.summary or {}
    env_id = str(config.get("env_id") or config.get("env") or "agent-gym run")
    model = config.get("model") or ("a tiny model, made for this run" if config.get("kind") == "embedded" else "")
    lead = [str(model) if isinstance(model, str) else "", f"seed {summary['seed']}" if "seed" in summary else "", source.name]
    return f"{env_id}: training report", " \u00b7 ".join(part for part in lead if part)


def overview_of(sources: Sequence[Source]) -> Markup | None:
    """Return the overview of the runs among the sources; None where there is none.

    Args:
        sources: one or two.
    """
    runs = [source.run for source in sources if source.run is not None]
    if not runs or len(runs) < len(sources):
        return None
    if not all(run.exists for run in runs):
        return tag("p", "The run begins.", class_="empty")
    return render_overview(runs, what_changed(sources[0]) if len(runs) == 1 else None)


def settings_of(sources: Sequence[Source], **more: Any) -> dict[str, Any]:
    """Return the script's settings.

    Args:
        sources: one or two.
        more: `served`, `live` and the like.
    """
    names = [{"name": visible(source.name), "letter": letter} for letter, source in zip(LETTERS, sources, strict=False)]
    return {"runs": names, "files": files_of(sources), "live": False, "served": False, **more}


def files_of(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return what the script is told of the files of episodes.

    Args:
        sources: one or two.
    """
    found = []
    for number, source in enumerate(sources):
        for file in source.files():
            with contextlib.suppress(FileNotFoundError):  # removed this moment
                generation, size = file.state
                found.append({"run": number, "name": file.path.name, "label": visible(file.label), "generation": generation, "size": size})
    return found


def _blocks(index: int, episodes: Iterator[Trajectory], tokenizer: Any) -> Iterator[Markup]:
    """The blocks of a file of episodes: a piece of summaries, then its episodes."""
    first = 0
    while True:
        piece = list(itertools.islice(episodes, PIECE))
        following = next(episodes, None)
        rows = [episode_summary(one) for one in piece]
        yield json_script(f"i-{index}-{first}", {"rows": rows, "end": following is None, "generation": 0})
        for number, one in enumerate(piece, start=first):
            yield json_script(f"e-{index}-{number}", episode_record(one, matching_tokenizer(tokenizer, one)))
        if following is None:
            return
        episodes = itertools.chain([following], episodes)
        first += PIECE


def _episodes_of(file: EpisodeFile, limit: int | None) -> Iterator[Trajectory]:
    """All episodes of a file, or so many of them: the last ones of a training, since the policy is then what it came to be, else the first."""
    count = sum(1 for _ in _numbers(file))
    chosen = range(count) if limit is None or count <= limit else range(count - limit, count) if file.path.stem == "train" else range(limit)
    return (file.episode(number) for number in chosen)


def _numbers(file: EpisodeFile) -> Iterator[int]:
    first = 0
    while True:
        piece = file.rows(first, PIECE)
        yield from range(first, first + len(piece["rows"]))
        first += len(piece["rows"])
        if piece["end"]:
            return


def render_file(sources: Sequence[Source], *, limit: int | None = None) -> str:
    """Return runs or files of episodes as one page with everything in it.

    Args:
        sources: one or two.
        limit: at most so many episodes of each file; None takes all.

    Returns:
        The HTML.

    Raises:
        ValueError: if a file is damaged.
    """
    title, lead = title_of(sources)
    blocks: list[Markup] = []
    index = 0
    for source in sources:
        for file in source.files():
            blocks += _blocks(index, _episodes_of(file, limit), source.tokenizer())
            index += 1
    return render_page(title, lead, settings_of(sources), overview_of(sources), blocks)


def write_page(path: str | Path, sources: Sequence[Source], *, limit: int | None = None) -> Path:
    """Write runs or files of episodes as one page.

    Args:
        path: of the file.
        sources: one, or two to be compared.
        limit: at most so many episodes of each file; None takes all.

    Returns:
        The file.

    Raises:
        ValueError: if a file of episodes is damaged.
        agent_gym.runs.RunFolderError: if the disk refuses.
    """
    return atomic_write(path, render_file(sources, limit=limit))


def render_report(run: RunFolder, tokenizer: Any = None) -> str:
    """Return the report of a run as HTML: its page with some episodes of each occasion.

    Args:
        run: the folder, which may still be growing.
        tokenizer: of its model; None finds it, and where there is none, ids are shown.

    Returns:
        A self-contained page.
    """
    source = Source(run.path.resolve().name, run, tokenizer=tokenizer)
    try:
        return render_file([source], limit=_REPORT_EPISODES)
    finally:
        source.close()


def write_report(run_dir: str | Path | RunFolder, tokenizer: Any = None) -> Path:
    """Write report.html into a run folder.

    Args:
        run_dir: the folder, or the opened run.
        tokenizer: of its model; None finds it.

    Returns:
        The file.

    Raises:
        agent_gym.runs.RunFolderError: if there is no run, or the disk refuses.
    """
    run = run_dir if isinstance(run_dir, RunFolder) else RunFolder.open(run_dir)
    return atomic_write(run.report_path, render_report(run, tokenizer))


def write_viewer(
    path: str | Path, trajectories: Sequence[Trajectory], tokenizer: Any = None, *, title: str = "Episodes", limit: int = 500
) -> Path:
    """Write a page that shows episodes token by token.

    Args:
        path: of the file.
        trajectories: the episodes.
        tokenizer: whose ids these are; None shows ids, or the project's own tokenizer where the fingerprint says so.
        title: of the page.
        limit: at most so many are shown; the page says how many there are.

    Returns:
        The file.
    """
    from agent_gym.chat import load_tokenizer

    solved = sum(episode.is_success for episode in trajectories)
    lead = f"{len(trajectories)} episodes, {solved} solved" + (f"; the first {limit} are shown" if len(trajectories) > limit else "")
    settings = {
        "runs": [{"name": title, "letter": LETTERS[0]}],
        "files": [{"run": 0, "name": "episodes", "label": "episodes", "generation": 0, "size": 0}],
        "live": False,
        "served": False,
    }
    blocks = list(_blocks(0, iter(trajectories[:limit]), load_tokenizer(tokenizer)))
    return atomic_write(path, render_page(title, lead, settings, None, blocks))

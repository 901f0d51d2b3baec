"""The documentation site: the menu names every page once, links lead somewhere, tables agree with the code, and mkdocs has nothing to say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from helpers import require
from pages import PAGES, ROOT

from agent_gym.testing import CHECKS

DOCS = ROOT / "docs"
FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)


def settings() -> dict:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def entries(nav: list | dict | str) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav if isinstance(nav, list) else list(nav.values())
    return [entry for part in parts for entry in entries(part)]


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as mkdocs and forges make them."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        names.add(name if not seen[name] else f"{name}_{seen[name]}")
        seen[name] += 1
    return names


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            wrong.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(text if target == page else target.read_text(encoding="utf-8")):
            wrong.append(f"{link}: no such heading")
    return wrong


def test_the_menu_names_every_page_once() -> None:
    named = entries(settings()["nav"])
    assert [name for name, times in Counter(named).items() if times > 1] == []
    assert set(named) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_a_link_to_no_page_and_one_to_no_heading_are_seen() -> None:
    text = (
        "# One page\n\n[a](nowhere.md) [b](#one-page) [c](#another) [d](tools.md#tools) [e](tools.md#no) [f](../README.md) `[g](no.md)`\n"
    )
    assert broken(DOCS / "index.md", text) == ["nowhere.md: no such file", "#another: no such heading", "tools.md#no: no such heading"]


def test_every_picture_is_shown_by_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in DOCS.glob("*.svg") if path.name not in text] == []


def test_the_table_of_checks_is_that_of_the_code() -> None:
    text = (DOCS / "conformance.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE))
    assert rows == {name: check.summary.rstrip(".") for name, check in CHECKS.items()}


def test_the_site_loads_nothing_from_elsewhere() -> None:
    chosen = settings()
    assert chosen["theme"]["font"] is False
    assert "repo_url" not in chosen and "extra_javascript" not in chosen and "analytics" not in chosen.get("extra", {})
    assert not re.search(r"https?://|@import", (DOCS / "assets" / "site.css").read_text(encoding="utf-8"))


def test_the_modules_of_the_api_pages_exist() -> None:
    named = [
        name
        for page in sorted((DOCS / "api").glob("*.md"))
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(named) == len(set(named)) > 40
    for name in named:
        module = name if name.rpartition(".")[2].islower() else name.rpartition(".")[0]
        assert importlib.util.find_spec(module) is not None, name


def test_the_citation_is_one_that_can_be_read() -> None:
    import tomllib

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["title"]
    assert str(citation["version"]) == project["version"] and citation["license"] == project["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    for work in citation["references"]:
        assert work["type"] == "article" and work["title"] and work["authors"]


@pytest.mark.slow
def test_mkdocs_builds_the_site_without_a_warning(tmp_path: Path) -> None:
    require("mkdocs")
    require("material")
    require("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stdout + done.stderr
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"?https?://", start)
    assert 'id="agent_gym.core.AgentEnv.reset"' in (tmp_path / "api" / "core.html").read_text(encoding="utf-8")
    assert (tmp_path / "files" / "recipes" / "alfworld.yaml.html").is_file()
    assert 'href="files/recipes/alfworld.yaml.html"' in (tmp_path / "alfworld.html").read_text(encoding="utf-8")

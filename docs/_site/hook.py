"""What mkdocs does not know about these pages: they also link to files of the repository, which become pages of the site.

A page names a file outside docs/ by its relative path, as people read it in a clone and on a forge. On the site each such file is a page
of its own under files/, so that the site needs no address of a repository and can be read without a network.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

LINK = re.compile(r"(\]\()(\.\./[^)#\s]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".md": "markdown", ".toml": "toml", ".txt": "text"}
LONGEST = 60_000  # characters of a file that are shown


def outside(page: str, link: str, docs: Path) -> Path | None:
    """The path in the repository, from its root, of what a page links to, or None where that lies in docs/.

    Args:
        page: the page's path in docs/.
        link: a relative path.
        docs: the folder docs/.

    Returns:
        The path.
    """
    path = Path(os.path.normpath(docs / Path(page).parent / link))
    return None if path.is_relative_to(docs) else path.relative_to(docs.parent)


def shown(path: Path, root: Path) -> str:
    """A file, or a folder's list of files, as Markdown.

    Args:
        path: from the root.
        root: of the repository.

    Returns:
        The page.
    """
    here = root / path
    if here.is_dir():
        names = sorted(str(child.relative_to(here)) for child in here.rglob("*") if child.is_file() and "__pycache__" not in child.parts)
        return f"# {path}/\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = here.read_text(encoding="utf-8")
    cut = "" if len(text) <= LONGEST else f"\n\nThe first {LONGEST:,} characters of {len(text):,}."
    if path.suffix == ".md":
        return re.sub(r"\]\((?!https?:)[^)]*\)", "]", text).replace("[", "").replace("]", "")
    fence = "`" * 5
    return f"# {path}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text[:LONGEST]}\n{fence}{cut}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that a page links to.

    Args:
        files: of the site.
        config: of the site.

    Returns:
        The files.

    Raises:
        FileNotFoundError: for a link to a file that is not there.
    """
    docs = Path(config.docs_dir)
    wanted = {
        path
        for file in files.documentation_pages()
        for _, link, _ in LINK.findall(file.content_string)
        if (path := outside(file.src_uri, link, docs)) is not None
    }
    for path in sorted(wanted):
        added = File.generated(config, f"files/{path}.md", content=shown(path, docs.parent), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(added)
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: Any) -> str:
    """Point links to files outside docs/ at their pages.

    Args:
        markdown: of the page.
        page: the page.
        config: of the site.

    Returns:
        The Markdown.
    """
    source = page.file.src_uri
    if source.startswith("files/"):
        return markdown
    up = "../" * source.count("/")

    def moved(found: re.Match[str]) -> str:
        path = outside(source, found[2], Path(config.docs_dir))
        return found[0] if path is None else f"{found[1]}{up}files/{path}.md)"

    return LINK.sub(moved, markdown)

"""HTML that no text can break out of."""

import html
import json

import pytest
from html_events import HOSTILE, Events
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.report.markup import Markup, escape, join, json_script, tag


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    page = Events(tag("p", text, title=text))
    assert [name for name, _ in page.tags] == ["p"]
    assert [name for name, _ in page.tags[0][1]] == ["title"]
    assert not page.odd


@given(st.text())
@settings(max_examples=150, deadline=None)
def test_any_text_makes_one_element_and_reads_back(text: str) -> None:
    page = Events(tag("p", text, title=text))
    assert [name for name, _ in page.tags] == ["p"] and not page.odd
    if text.isprintable() and not any("\u200e" <= c <= "\u2069" or c in "\u061c\ufeff" for c in text):
        assert page.text == text and page.tags[0][1][0][1] == text


def test_characters_that_would_change_the_page_around_them_are_shown_by_name() -> None:
    shown = escape("a\u202eb\x07c\x1b[31m")
    assert "\u202e" not in shown and "\x1b" not in shown and "U+202E" in shown and "\u2407" in shown


def test_markup_is_kept_and_joined() -> None:
    assert join([tag("b", "x"), "<", None]) == "<b>x</b>&lt;"
    assert isinstance(join([]), Markup)


def test_attributes() -> None:
    assert tag("rect", class_="a", stroke_width=2, hidden=False, open=True, x=None) == '<rect class="a" stroke-width="2" open></rect>'
    assert tag("input", name='"') == '<input name="&quot;">'


@pytest.mark.parametrize("text", [*HOSTILE, "</SCRIPT >", "\u2028\u2029"])
def test_data_cannot_end_its_script(text: str) -> None:
    value = {text.encode("utf-8", "replace").decode(): [text.encode("utf-8", "replace").decode()]}
    block = json_script("data", value)
    assert block.lower().count("<script") == 1 and block.lower().count("</script") == 1
    inner = block[block.index(">") + 1 : block.rindex("</script>")]
    assert not set(inner) & set("<>&")
    assert json.loads(inner) == value


def test_the_check_sees_markup_that_got_through() -> None:
    """The mutant: without escaping, what the tests above look at is different."""
    broken = f'<p title="{HOSTILE[3]}">{HOSTILE[0]}</p>'
    page = Events(broken)
    assert [name for name, _ in page.tags] != ["p"] and len(page.tags[0][1]) > 1
    assert html.escape(HOSTILE[0]) != HOSTILE[0]

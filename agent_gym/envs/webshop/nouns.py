"""The nouns of a product's title, by which the reward tells whether a product is of the wanted kind.

The original takes the words that a spaCy model tags as nouns or names. `nouns_by("spacy:en_core_web_sm")` does the same, for numbers that
are to be compared with published ones. The default, `nouns_by("words")`, needs no package: every run of letters and digits that holds a
letter and is no word such as "for" or "new". Results say which one was used, since the two do not agree on every title.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

__all__ = ["NounFinder", "nouns_by", "title_words"]

NounFinder = Callable[[str], tuple[str, ...]]
"""From a title to its nouns in lower case, repeated ones included."""

_WORD = re.compile(r"\d*[^\W\d_][^\W_]*")
_NO_NOUNS = (
    "a an and or nor but the this that these those each every all any both some no not of for from with without in into on onto at by to "
    "up out off over under as per via is are be it its your you our we my their his her new best great good perfect easy"
)
_OTHERS = frozenset(_NO_NOUNS.split())
_TAGS = frozenset({"NOUN", "PROPN", "PNOUN"})
_KEPT = 1 << 16


def nouns_by(backend: str | Callable[[str], Any] = "words") -> NounFinder:
    """The way to find the nouns of a title.

    Args:
        backend: "words", "spacy:MODEL" with the name of an installed spaCy model, or a function from a title to its nouns.

    Returns:
        A function that remembers the titles it has seen, up to a bound.

    Raises:
        ImportError: If spaCy is asked for and missing.
        ValueError: If the backend is unknown or the model is not installed.
    """
    if callable(backend):
        given = backend

        def found(title: str) -> tuple[str, ...]:
            nouns = given(title)
            words = None if isinstance(nouns, (str, bytes)) or not isinstance(nouns, Iterable) else tuple(nouns)
            if words is None or not all(isinstance(word, str) for word in words):
                raise ValueError(f"noun_backend must return the nouns of a title, texts one by one, not {nouns!r:.200}")
            return words

        return found
    if backend == "words":
        return title_words
    kind, _, model = backend.partition(":")
    if kind != "spacy" or not model:
        raise ValueError(f'noun_backend must be "words", "spacy:MODEL" (such as "spacy:en_core_web_sm") or a function, got {backend!r}')
    return _spacy_nouns(model)


@lru_cache(_KEPT)
def title_words(title: str) -> tuple[str, ...]:
    """The words of a title that may be nouns.

    Args:
        title: Of a product.

    Returns:
        In lower case, in their order; a word that comes twice comes twice.
    """
    return tuple([word for word in _WORD.findall(title.lower()) if word not in _OTHERS])


@lru_cache(8)
def _spacy_nouns(model: str) -> NounFinder:
    try:
        import spacy
    except ImportError as error:
        raise ImportError(f'noun_backend "spacy:{model}" needs spaCy; run: pip install "agentr1-gym[webshop]"') from error
    try:
        tag = spacy.load(model)
    except OSError as error:
        raise ValueError(f"the spaCy model {model!r} is not installed; run: python -m spacy download {model}") from error

    @lru_cache(_KEPT)
    def found(title: str) -> tuple[str, ...]:
        return tuple([token.text.lower() for token in tag(title) if token.pos_ in _TAGS])

    return found

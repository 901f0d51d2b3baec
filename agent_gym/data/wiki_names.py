"""Invented names for the generated encyclopaedia, and why no name of one split can occur in another.

All splits build words from the same syllable shapes, the same vowels and the same six common consonants; beside these each split owns a few
consonants of its own, its *marks*. A word always holds at least one mark of its split and never one of another. So no word of one split equals a
word of another, nor hides inside one, and every name holds at least one such word. That is a property of the spelling, not of a stored list:
the supply of names has no end and no two worlds need to be compared.

A validation or test score is therefore measured on names that training has never shown, while the language around them stays the same.
"""

from __future__ import annotations

import numpy as np

__all__ = ["MARKS", "SPLITS", "WordMaker"]

SPLITS = ("train", "validation", "test")

MARKS = {"train": "bdvg", "validation": "kfh", "test": "pzw"}
"""The consonants that each split owns."""

_SHARED = "lnrstm"
_VOWELS = "aeiou"
_CLUSTERS = {"train": ("br", "dr", "gr", "bl", "gl"), "validation": ("kr", "fr", "kl", "fl", "kn"), "test": ("pr", "pl", "zl", "pn", "wr")}
_CODAS = ("", "", "", "", "", "", "l", "n", "r", "s", "m")
_ENDINGS = {
    "given": ("a", "o", "is", "an", "el", "ien", "or", "une"),
    "surname": ("ar", "en", "ost", "ale", "ini", "umer", "ast", "olt", "esen"),
    "place": (
        "un",
        "ora",
        "este",
        "imar",
        "olm",
        "ant",
        "ur",
        "asse",
        "eron",
        "ino",
        "ale",
        "ossen",
        "ulio",
        "anos",
        "erre",
        "itt",
        "ole",
        "arn",
    ),
}
_COMMON_NOUNS = (
    "devil dinner dollar gallant gallon garden garlic gender general gerund giant golden ladder lavender level medal model mural nodal novel "
    "order robot salad server silver solid tavern travel valiant velvet vendor fallen father fellow finish flora former frost hello history human "
    "hunter kernel kitten knot market skeleton sister paper parent patent patrol person pilot planet plant plaster polar present prison proper "
    "repent repose resort sapper spoon temper tempest walnut waltz warrant water zealot zero"
)
_WORDS_OF_ENGLISH = frozenset(_COMMON_NOUNS.split())  # a name should not read as one of them


class WordMaker:
    """Makes invented words of one split, each only once.

    Args:
        split: "train", "validation" or "test".
        rng: the world's own generator.

    Raises:
        ValueError: if there is no such split.
    """

    def __init__(self, split: str, rng: np.random.Generator) -> None:
        if split not in MARKS:
            raise ValueError(f"the generated world has the splits {', '.join(SPLITS)}, not {split!r}")
        self._marks = frozenset(MARKS[split])
        self._onsets = (*MARKS[split] * 3, *_CLUSTERS[split], *_SHARED * 2)
        self._rng = rng
        self._used: set[str] = set()

    def _pick(self, options: tuple[str, ...] | str) -> str:
        return options[int(self._rng.integers(len(options)))]

    def word(self, style: str) -> str:
        """Return a new capitalised word.

        Args:
            style: "given", "surname" or "place"; they differ in length and ending.

        Returns:
            Two or three syllables, at least five letters, with at least one of the split's marks; never a word that this maker gave before,
            nor one that begins as such a word does.
        """
        while True:
            stems = 1 if style == "given" or self._rng.random() < 0.25 else 2
            body = "".join(self._pick(self._onsets) + self._pick(_VOWELS) + self._pick(_CODAS) for _ in range(stems))
            text = body + self._pick(self._onsets) + self._pick(_ENDINGS[style])
            if len(text) < 5 or len(text) > 11 or not self._marks & set(text) or text in _WORDS_OF_ENGLISH:
                continue
            if any(text.startswith(other[:5]) or text in other or other in text for other in self._used):
                continue
            self._used.add(text)
            return text.capitalize()

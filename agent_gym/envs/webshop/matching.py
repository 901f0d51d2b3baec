"""How alike two phrases are, as WebShop's reward measures it: the token set ratio of the `thefuzz` package, without the package.

Both phrases are cut into sets of words. Where all words of one are in the other they are wholly alike; otherwise the best of three
comparisons counts: the words that differ, and the common words with and without those that differ. Two strings are compared by their
longest common subsequence.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["COLORS", "main_color", "token_set_ratio"]

_COLORS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel "
    "champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim "
    "eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender "
    "lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude "
    "olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone "
    "stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
COLORS = tuple(_COLORS.split())
"""The colour words that the reward knows, in the order in which it looks for them."""

_LATIN_1 = dict.fromkeys(range(128, 256))
_NO_WORD = re.compile(r"[\W_]")


def main_color(option: str) -> str:
    """The first known colour word inside an option value, also inside another word; the value itself where there is none.

    Args:
        option: In lower case.

    Returns:
        The word, or the value.
    """
    for color in COLORS:
        if color in option:
            return color
    return option


@lru_cache(1 << 16)
def token_set_ratio(first: str, second: str) -> int:
    """How alike two phrases are.

    Args:
        first: Any text. Letters of the Latin-1 supplement are left out, and what is neither letter nor digit separates words.
        second: The same.

    Returns:
        0 to 100; 0 where one has no words.
    """
    ours, theirs = _words(first), _words(second)
    if not ours or not theirs:
        return 0
    common = ours & theirs
    if common and (ours <= theirs or theirs <= ours):
        return 100
    ours_alone, theirs_alone = " ".join(sorted(ours - common)), " ".join(sorted(theirs - common))
    shared = len(" ".join(sorted(common)))
    gap = 1 if shared else 0
    our_length, their_length = shared + gap + len(ours_alone), shared + gap + len(theirs_alone)
    distance = len(ours_alone) + len(theirs_alone) - 2 * _common_subsequence(ours_alone, theirs_alone)
    best = _alike(distance, our_length + their_length)
    if shared:
        best = max(best, _alike(gap + len(ours_alone), shared + our_length), _alike(gap + len(theirs_alone), shared + their_length))
    return round(best)


def _alike(distance: int, length: int) -> float:
    return 100.0 - 100.0 * distance / length if length else 100.0


@lru_cache(1 << 16)
def _words(phrase: str) -> frozenset[str]:
    text = _NO_WORD.sub(" ", phrase.translate(_LATIN_1))
    # By single letters where there are others than ASCII: no final sigma, and no second character of a dotted capital I.
    return frozenset((text.lower() if text.isascii() else "".join([letter.lower()[0] for letter in text])).split())


def _common_subsequence(first: str, second: str) -> int:
    """The length of the longest common subsequence, a row of the table per step in one integer (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    full = (1 << len(first)) - 1
    row = full
    for character in second:
        matched = row & places.get(character, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(first) - row.bit_count()

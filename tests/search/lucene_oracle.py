"""A slow second opinion on Lucene's English analysis and BM25, in plain Python. It imports nothing of the package under test.

Words are found by trying every end of every start against the grammar, written over one letter per character class; it therefore knows only the
characters of `CLASSES`. Scores are taken in 32-bit steps by packing and unpacking.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Sequence

CLASSES = {
    "A": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéñßИд",
    "H": "אבת",
    "N": "0123456789５٣",
    "K": "アカー",
    "E": "_‿",
    "L": ":·：",
    "M": ",;，",
    "B": ".’",
    "Q": "'",
    "D": '"',
    "X": "\u0301\u00ad",
    "Z": "\u200d",
    "P": "\ufe0f",
    "U": "\u20e3",
    "C": "漢字",
    "R": "ひら",
    "T": "กข",
    "F": "❤★😀™",
    "G": "👍",
    "S": "🏽",
    "I": "🇺🇸",
    "#": "#*",
    "O": " -!\n(\u2014\u3000",
}
CLASS_OF = {character: name for name, characters in CLASSES.items() for character in characters}
STOP = {
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on", "or", "such", "that",
    "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
}  # fmt: skip

_X = "[XZPU]*"
_JOIN = f"(?:E{_X})"
_NUMBER = f"(?:N{_X}(?:(?:{_JOIN}*|[MBQ]{_X})N{_X})*)"
_LETTERS = f"(?:[AH]{_X}(?:(?:{_JOIN}*|[LBQ]{_X})[AH]{_X})*)"
_HEBREW = f"(?:H{_X}(?:Q{_X}|D{_X}H{_X}))"
_SEGMENT = f"(?:K{_X}(?:{_JOIN}*K{_X})*|(?:{_HEBREW}|{_NUMBER}|{_LETTERS})+)"
_BARE = "[XZU]*"
_SIGN = f"(?:Z*[FG]{_BARE}P?|(?:Z*G{_BARE})?S{_BARE})"
_RULES = [
    f"{_JOIN}*{_SEGMENT}(?:{_JOIN}+{_SEGMENT})*{_JOIN}*",
    f"{_SIGN}(?:Z{_SIGN})*",
    f"[#N]{_BARE}P?U{_BARE}",
    f"I{_X}I{_X}",
    f"(?:T{_X})+",
    f"[CR]{_X}",
]
_RULE = re.compile("|".join(f"(?:{rule})" for rule in _RULES))


def tokens(text: str) -> list[str]:
    """At each place the longest stretch that is a token; where there is none, the next place."""
    shape = "".join(CLASS_OF[character] for character in text)
    found, start = [], 0
    while start < len(text):
        end = next((end for end in range(len(text), start, -1) if _RULE.fullmatch(shape, start, end)), None)
        if end is not None:
            found.append(text[start:end])
        start = start + 1 if end is None else end
    return found


@functools.cache
def _terms(piece: str) -> list[str]:
    words = [re.sub("['’＇][sS]$", "", token) for token in tokens(piece)]
    words = ["".join(letter.lower() for letter in word) for word in words]
    return [porter(word) for word in words if word not in STOP]


def terms(text: str) -> list[str]:
    """The terms of a text; a blank always ends a word."""
    return [term for piece in text.split(" ") for term in _terms(piece)]


def _shape(word: str) -> str:
    shape = ""
    for place, letter in enumerate(word):
        vowel = letter in "aeiou" or (letter == "y" and place > 0 and shape[-1] == "c")
        shape += "v" if vowel else "c"
    return shape


def _m(stem: str) -> int:
    return len(re.findall("v+c+", _shape(stem)))


def _longest(word: str, rules: dict[str, str], least: int) -> str:
    """Where several suffixes fit, the longest is the one that counts, whether or not its condition holds."""
    for suffix in sorted(rules, key=len, reverse=True):
        if word.endswith(suffix):
            head = word[: len(word) - len(suffix)]
            return head + rules[suffix] if _m(head) >= least else word
    return word


@functools.cache
def porter(word: str) -> str:
    if len(word) < 3:
        return word
    word = re.sub("(?:(?<=ss)|(?<=i))es$|(?<!s)s$", "", word)
    if word.endswith("eed"):
        word = word[:-1] if _m(word[:-3]) else word
    elif (cut := re.fullmatch("(.*?)(ed|ing)", word, re.DOTALL)) and "v" in _shape(cut[1]):
        word = cut[1]
        if re.search("(?:at|bl|iz)$", word):
            word += "e"
        elif len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c":
            word = word if word[-1] in "lsz" else word[:-1]
        elif _m(word) == 1 and _shape(word).endswith("cvc") and word[-1] not in "wxy":
            word += "e"
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    second = "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize ation:ate ator:ate alism:al"
    second += " iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"
    word = _longest(word, dict(rule.split(":") for rule in second.split()), 1)
    word = _longest(word, {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}, 1)
    fourth = "al ance ence er ic able ible ant ement ment ent ou ism ate iti ous ive ize"
    if word.endswith("ion"):
        word = word[:-3] if word[:-3].endswith(("s", "t")) and _m(word[:-3]) > 1 else word
    else:
        word = _longest(word, dict.fromkeys(fourth.split(), ""), 2)
    full = _m(word)
    if word.endswith("e"):
        rest = word[:-1]
        if _m(rest) > 1 or (_m(rest) == 1 and not (_shape(rest).endswith("cvc") and rest[-1] not in "wxy")):
            word = rest
    return word[:-1] if word.endswith("ll") and full > 1 else word


def single(number: float) -> float:
    """The nearest 32-bit float."""
    return struct.unpack("f", struct.pack("f", number))[0]


def squeeze(length: int) -> int:
    """What is left of a length in Lucene's one byte: exact below 24, above that the four leading bits of what exceeds 24."""
    if length < 24:
        return length
    rest = length - 24
    shift = max(rest.bit_length() - 4, 0)
    return 24 + (rest >> shift << shift)


def rank(pages: Sequence[tuple[str, list[str]]], query: list[str], k: int, k1: float = 0.9, b: float = 0.4) -> list[tuple[str, float]]:
    """Ids and scores of the best pages, each given as id and terms."""
    lengths = [len(words) for _, words in pages]
    filled = sum(1 for length in lengths if length)
    scores: dict[str, float] = {}
    order = list(dict.fromkeys(query))
    average = single(sum(lengths) / filled) if filled else 1.0
    for word in order:
        frequency = sum(1 for _, words in pages if word in words)
        if not frequency:
            continue
        weight = single(query.count(word) * single(math.log(1 + (filled - frequency + 0.5) / (frequency + 0.5))))
        for name, words in pages:
            count = words.count(word)
            if count:
                part = single(single(single(b) * squeeze(len(words))) / average)
                norm = single(single(k1) * single(single(1 - single(b)) + part))
                inverse = single(1 / norm) if norm else math.inf
                score = single(weight - single(weight / single(1 + single(count * inverse))))
                scores[name] = scores.get(name, 0.0) + score
    return sorted(((name, single(score)) for name, score in scores.items()), key=lambda item: (-item[1], item[0]))[:k]

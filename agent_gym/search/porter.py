"""The Porter stemmer as Lucene has it.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, in the form of Porter's own later programs, which departs from the paper
twice in step 2 (`bli` becomes `ble`, not `abli` `able`; `logi` becomes `log`) and leaves words of one or two letters alone. Any character
other than a, e, i, o, u and a y behind a consonant counts as a consonant, so digits, apostrophes and foreign letters do.
"""

from __future__ import annotations

__all__ = ["stem"]

_STEP_2 = {
    "a": (("ational", "ate"), ("tional", "tion")),
    "c": (("enci", "ence"), ("anci", "ance")),
    "e": (("izer", "ize"),),
    "l": (("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    "o": (("ization", "ize"), ("ation", "ate"), ("ator", "ate")),
    "s": (("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    "t": (("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
    "g": (("logi", "log"),),
}
_STEP_3 = {
    "e": (("icate", "ic"), ("ative", ""), ("alize", "al")),
    "i": (("iciti", "ic"),),
    "l": (("ical", "ic"), ("ful", "")),
    "s": (("ness", ""),),
}
_STEP_4 = {
    "a": ("al",),
    "c": ("ance", "ence"),
    "e": ("er",),
    "i": ("ic",),
    "l": ("able", "ible"),
    "n": ("ant", "ement", "ment", "ent"),
    "o": ("sion", "tion", "ou"),
    "s": ("ism",),
    "t": ("ate", "iti"),
    "u": ("ous",),
    "v": ("ive",),
    "z": ("ize",),
}


def stem(word: str) -> str:
    """Strips the suffixes of an English word.

    Args:
        word: In lower case.

    Returns:
        The stem, never empty unless the word is.
    """
    if len(word) <= 2:
        return word
    word = _step_1(word)
    word = _replace(word, _STEP_2.get(word[-2:-1], ()))
    word = _replace(word, _STEP_3.get(word[-1:], ()))
    return _step_5(_step_4(word))


def _shape(word: str) -> str:
    """The word as a string of c (consonant) and v (vowel)."""
    shape = []
    previous = "v"  # a y at the start is a consonant
    for letter in word:
        previous = "v" if letter in "aeiou" or (letter == "y" and previous == "c") else "c"
        shape.append(previous)
    return "".join(shape)


def _measure(word: str) -> int:
    """How many times a vowel is followed by a consonant: the m of [C](VC)^m[V]."""
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_double(word: str) -> bool:
    """Ends in a doubled consonant."""
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_cvc(word: str) -> bool:
    """Ends in consonant, vowel, consonant, the last one not w, x or y; then a final e was there, as in hop(e)."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _step_1(word: str) -> str:
    """Plurals, past tense and -ing, then the final y."""
    if word.endswith("sses") or word.endswith("ies"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        for suffix in ("ed", "ing"):
            if word.endswith(suffix):
                if _has_vowel(word[: -len(suffix)]):
                    word = _restore(word[: -len(suffix)])
                break
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    return word


def _restore(word: str) -> str:
    """Mends what is left when -ed or -ing is gone."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word):
        return word if word[-1] in "lsz" else word[:-1]
    if _measure(word) == 1 and _ends_cvc(word):
        return word + "e"
    return word


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Applies the first rule whose suffix the word has, where something with a measure stands before it."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            head = word[: -len(suffix)]
            return head + replacement if _measure(head) > 0 else word
    return word


def _step_4(word: str) -> str:
    """Takes a suffix off where more than one measure stands before it."""
    for suffix in _STEP_4.get(word[-2:-1], ()):
        if word.endswith(suffix):
            head = word[: -len(suffix)]
            if suffix in ("sion", "tion"):
                head = word[:-3]
            return head if _measure(head) > 1 else word
    return word


def _step_5(word: str) -> str:
    """Takes off a final e, then one of two final l's."""
    measure = _measure(word)
    if word.endswith("e"):
        before = _measure(word[:-1])
        if before > 1 or (before == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and measure > 1:
        word = word[:-1]
    return word

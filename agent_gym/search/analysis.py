"""Lucene's English analyzer in Python: text in, index terms out, the same terms as Lucene's, so that its rankings can be reproduced.

The chain is that of Anserini's `DefaultEnglishAnalyzer` (Lucene 9): StandardTokenizer (the word breaks of Unicode Standard Annex 29, single
ideographs and hiragana, whole runs of Thai and its neighbours, emoji sequences, at most 255 UTF-16 units a token), the English possessive
filter, lower case by code point, the 33 English stop words, and the Porter stemmer (see `porter`).

A text is cut at blanks, which always break words. ASCII pieces take a small pattern of `re`, the rest a full one of `regex`; on ASCII the two
find the same tokens (tested). The way from a token to its term is remembered in a bounded table shared by the process.
"""

from __future__ import annotations

import re

import regex

from agent_gym.search.porter import stem

__all__ = ["ANALYZER_VERSION", "MAX_TOKEN_LENGTH", "STOP_WORDS", "analyze", "tokenize"]

ANALYZER_VERSION = "lucene-english-1"
"""Changes whenever the terms of any text do; a saved index holds it and is rebuilt when it differs."""

MAX_TOKEN_LENGTH = 255
"""In UTF-16 units; a longer token is cut into tokens of at most that length."""

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's `EnglishAnalyzer.ENGLISH_STOP_WORDS_SET`."""

# Extended_Pictographic as of Unicode 14. Later versions took symbols such as the black star out of it, so the property of the `regex`
# package, which follows the newest Unicode, would give other tokens.
_PICTOGRAPHS = (
    "A9 AE 203C 2049 2122 2139 2194-2199 21A9-21AA 231A-231B 2328 2388 23CF 23E9-23F3 23F8-23FA 24C2 25AA-25AB 25B6 25C0 25FB-25FE 2600-2605 "
    "2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271D 2721 2728 2733-2734 2744 2747 274C 274E 2753-2755 2757 2763-2767 2795-2797 27A1 27B0 "
    "27BF 2934-2935 2B05-2B07 2B1B-2B1C 2B50 2B55 3030 303D 3297 3299 1F000-1F0FF 1F10D-1F10F 1F12F 1F16C-1F171 1F17E-1F17F 1F18E 1F191-1F19A "
    "1F1AD-1F1E5 1F201-1F20F 1F21A 1F22F 1F232-1F23A 1F23C-1F23F 1F249-1F3FA 1F400-1F53D 1F546-1F64F 1F680-1F6FF 1F774-1F77F 1F7D5-1F7FF "
    "1F80C-1F80F 1F848-1F84F 1F85A-1F85F 1F888-1F88F 1F8AE-1F8FF 1F90C-1F93A 1F93C-1F945 1F947-1FAFF 1FC00-1FFFD"
)


def _ranges(text: str) -> str:
    """The inside of a character class from code points and ranges in hexadecimal."""
    return "".join("-".join(f"\\U{int(end, 16):08X}" for end in part.split("-")) for part in text.split())


_PICTOGRAPH = _ranges(_PICTOGRAPHS)
_SKIN = r"\U0001F3FB-\U0001F3FF"
_NAMES = {
    # Whatever extends a character. Skin tones are emoji of their own in the Unicode version of Lucene's grammar.
    "ext": rf"[[\p{{WB=Extend}}\p{{WB=Format}}\p{{WB=ZWJ}}]--[{_SKIN}]]*+",
    # The same without the two presentation selectors, as inside emoji.
    "bare": rf"[[\p{{WB=Extend}}\p{{WB=Format}}\p{{WB=ZWJ}}]--[{_SKIN}\uFE0E\uFE0F]]",
    "plain": r"[\p{WB=ALetter}--\u02D7]",
    "letter": r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}--\u02D7]",
    "hebrew": r"\p{WB=Hebrew_Letter}",
    "digit": r"[\p{WB=Numeric}\uFF10-\uFF19]",
    "katakana": r"\p{WB=Katakana}",
    "joiner": r"\p{WB=ExtendNumLet}",
    "mid_letter": r"[:\u00B7\u02D7\u0387\u055F\u05F4\u2027\uFE13\uFE55\uFF1A.\u2018\u2019\u2024\uFE52\uFF07\uFF0E']",
    "mid_number": r"[,;\u037E\u0589\u060C\u060D\u066C\u07F8\u2044\uFE10\uFE14\uFE50\uFE54\uFF0C\uFF1B.\u2018\u2019\u2024\uFE52\uFF07\uFF0E']",
    "picture": f"[{_PICTOGRAPH}]",
    "skin": f"[{_SKIN}]",
}
_DIGITS = r"(?:{digit}{ext})++"
# WB5 to WB7: letters, also across one mid letter. WB7a to WB7c: behind a Hebrew letter a quote may stand, or a double quote and one more such
# letter. As in Lucene's grammar, a Hebrew letter that a mid letter or a double quote has joined takes no quote of its own.
_MORE_LETTERS = r"(?:{mid_letter}{ext}{letter}{ext})*+"
_LETTER_RUN = r"(?:{plain}{ext})++" + _MORE_LETTERS + r"|{hebrew}{ext}(?:'{ext}|\x22{ext}{hebrew}{ext})|{hebrew}{ext}" + _MORE_LETTERS
# WB8, WB11, WB12: digits, also across one mid number.
_DIGIT_RUN = _DIGITS + r"(?:{mid_number}{ext}" + _DIGITS + r")*+"
# WB9, WB10, WB13: katakana joins letters and digits only through a joiner such as the underscore.
_SEGMENT = r"(?:(?:" + _LETTER_RUN + "|" + _DIGIT_RUN + r")++|(?:{katakana}{ext})++)"
_JOINERS = r"(?:{joiner}{ext})"
_WORD = _JOINERS + "*+" + _SEGMENT + "(?:" + _JOINERS + "++" + _SEGMENT + ")*+" + _JOINERS + "*+"
_PICTURE = r"(?:\p{Emoji_Modifier_Base}{bare}*+{skin}{bare}*+|{picture}{bare}*+\uFE0F?+)"
_SKIN_SIGN = r"{skin}{bare}*+"
_EMOJI = (
    r"(?:(?:\u200D*+" + _PICTURE + "|" + _SKIN_SIGN + ")"
    r"(?:(?:\u200D*+(?<=\u200D)" + _PICTURE + r"|(?:\u200D|(?<=\u200D))" + _SKIN_SIGN + r")++|[\U000E0020-\U000E007E]++\U000E007F)?+"
    r"|[#*0-9]{bare}*\uFE0F?\u20E3{bare}*+"
    r"|\p{RI}{ext}\p{RI}{ext})"
)
_OTHER = r"(?:\p{Line_Break=SA}{ext})++|\p{Script=Han}{ext}|\p{Script=Hiragana}{ext}"
# What stands behind the tokens is no token; it is consumed so that a long run of joiners is looked at once.
_FULL = "|".join((_WORD, _EMOJI, _OTHER, r"(?P<skip>" + _JOINERS + r"++|\u200D++)"))


def _compile(pattern: str) -> regex.Pattern[str]:
    for name, value in _NAMES.items():
        pattern = pattern.replace("{" + name + "}", value)
    return regex.compile(pattern, regex.V1)


_TOKEN = _compile(_FULL)
_EMOJI_TOKEN = _compile(_EMOJI)
_ZWJ = "\u200d"
_LETTER_PICTURES = frozenset("\u2139\u24c2\U0001f170\U0001f171\U0001f17e\U0001f17f")
"""Letters that are pictographs too: the longer of the two tokens counts."""
_ASCII_TOKEN = (
    re.compile(  # without possessive quantifiers, which Python's own module gets wrong up to 3.11.3; nothing in it backtracks far
        r"_*[A-Za-z0-9][A-Za-z0-9_]*(?:(?:(?<=[A-Za-z])[:.'](?=[A-Za-z])|(?<=[0-9])[,;.'](?=[0-9]))[A-Za-z0-9_]+)*|_+"
    )
)


def tokenize(text: str) -> list[str]:
    """Splits text into words as Lucene's StandardTokenizer does.

    Args:
        text: Any string.

    Returns:
        The tokens in order, as they stand in the text. Takes time linear in the text.
    """
    tokens: list[str] = []
    for piece in _pieces(text):
        _add_tokens(piece, tokens)
    return tokens


def analyze(text: str) -> list[str]:
    """Turns text into index terms as Lucene's English analyzer does.

    Args:
        text: A document or a query.

    Returns:
        The terms in order, repeated ones included, stop words left out.
    """
    tokens = _ASCII_TOKEN.findall(text) if text.isascii() else tokenize(text)
    if len(text) > MAX_TOKEN_LENGTH and tokens and len(max(tokens, key=len)) > MAX_TOKEN_LENGTH:
        tokens = tokenize(text)
    return [term for term in map(_terms.__getitem__, tokens) if term]


def _pieces(text: str) -> list[str]:
    """Cuts text into ASCII stretches and stretches that are not, at blanks."""
    if text.isascii():
        return [text]
    pieces: list[str] = []
    ascii_words: list[str] = []
    for word in text.split(" "):
        if word.isascii():
            ascii_words.append(word)
        else:
            pieces.append(" ".join(ascii_words))
            pieces.append(word)
            ascii_words.clear()
    pieces.append(" ".join(ascii_words))
    return pieces


def _add_tokens(piece: str, tokens: list[str]) -> None:
    if piece.isascii():
        found = _ASCII_TOKEN.findall(piece)
        if len(piece) <= MAX_TOKEN_LENGTH or not found or len(max(found, key=len)) <= MAX_TOKEN_LENGTH:
            tokens.extend([token for token in found if token[-1] != "_" or token.strip("_")])
            return
    _add_full_tokens(piece, 0, len(piece), tokens)


def _add_full_tokens(text: str, start: int, end: int, tokens: list[str]) -> None:
    """Adds the tokens of `text[start:end]` by the full pattern; a token that is too long is cut by looking at 255 units at a time."""
    while (match := _TOKEN.search(text, start, end)) is not None:
        begin, start = match.span()
        if text[begin] in _LETTER_PICTURES and (emoji := _EMOJI_TOKEN.match(text, begin, end)) is not None:
            start = max(start, emoji.end())
        if (start - begin) * 2 > MAX_TOKEN_LENGTH and (limit := _limit(text, begin, start)) < start:
            _add_cut_tokens(text, begin, start, limit, tokens)
        elif match.lastgroup != "skip":
            tokens.append(text[begin:start])
        elif text[begin] != _ZWJ:
            while text[start - 1] == _ZWJ:  # an emoji may begin with these
                start -= 1


def _add_cut_tokens(text: str, begin: int, end: int, limit: int, tokens: list[str]) -> None:
    while begin < end:
        match = _TOKEN.search(text, begin, limit)
        if match is None:
            begin = limit
        else:
            if match.start() > begin and limit < end:  # the window begins with the token
                begin, limit = match.start(), _limit(text, match.start(), end)
                continue
            if match.lastgroup != "skip":
                tokens.append(match.group())
            begin = match.end()
        limit = _limit(text, begin, end)


def _limit(text: str, begin: int, end: int) -> int:
    """The end of the stretch from `begin` that holds at most 255 UTF-16 units."""
    limit = min(end, begin + MAX_TOKEN_LENGTH)
    window = text[begin:limit]
    if window.isascii():
        return limit
    units = 0
    for offset, character in enumerate(window):
        units += 2 if character > "\uffff" else 1
        if units > MAX_TOKEN_LENGTH:
            return begin + offset
    return limit


class _Terms(dict[str, str]):
    """Remembers the term of each token, up to a bound. Empty: the token is not indexed."""

    _size = 1 << 17
    _longest = 40

    def __missing__(self, token: str) -> str:
        term = _term(token)
        if len(token) <= self._longest:
            if len(self) >= self._size:
                self.clear()
            self[token] = term
        return term


def _term(token: str) -> str:
    if len(token) >= 2 and token[-1] in "sS" and token[-2] in "'\u2019\uff07":
        token = token[:-2]
    if token.isascii():
        token = token.lower()
        if not token.strip("_"):
            return ""
    else:
        # By code point, without the special cases of whole words: the dotted capital I becomes i, a final sigma stays a plain one.
        token = "".join(character.lower()[0] for character in token)
    return "" if token in STOP_WORDS else stem(token)


_terms = _Terms()

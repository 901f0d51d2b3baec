"""Text to ids and back, with control tokens matched where the template printed them and nowhere else. Used by `chat.py` and `core.py` alone."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Encoder", "alternation", "control_tokens", "escaped", "own_copy", "without_surrogates"]

_ANCHOR = "\x00"
_IMMUTABLE = frozenset({int, float, bool, str})


def alternation(literals: Iterable[str]) -> re.Pattern[str]:
    """A pattern of any of the literals, longest first; of nothing when there are none."""
    ordered = sorted({one for one in literals if one}, key=lambda one: (-len(one), one))
    return re.compile("|".join(map(re.escape, ordered)) or "(?!)")


def escaped(literal: str) -> str:
    """Return a marker as text that can be read and is no marker: `<` as `&lt;`, or where it has none, its first character as a number."""
    return literal.replace("<", "&lt;") if "<" in literal else f"&#{ord(literal[0])};{literal[1:]}"


def control_tokens(tokenizer: PreTrainedTokenizerBase, printed: str, markers: Sequence[str]) -> dict[str, int]:
    """Literal and id of every control token: special, in what the template prints of its own, or a marker that is one token."""
    control: dict[str, int] = {}
    for index, token in tokenizer.added_tokens_decoder.items():
        literal = str(token)
        if index == tokenizer.unk_token_id and literal not in printed:
            continue  # what a word-level vocabulary makes of an unknown word: ordinary text
        if token.special or (literal.strip() and literal in printed):
            control[literal] = int(index)
    added = tokenizer.get_added_vocab()
    for marker in markers:
        if marker in added:
            control[marker] = int(added[marker])
    return control


def without_surrogates(text: str) -> str:
    """Return the text with half surrogate pairs, which no file and no tokenizer takes, as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def own_copy(value: Any) -> Any:
    """Return a value of info that nobody changes later, its texts without half surrogate pairs; what is whole already comes back as it is."""
    if type(value) is str:
        return without_surrogates(value)
    if type(value) is tuple and _IMMUTABLE.issuperset(map(type, value)):
        whole = tuple([without_surrogates(one) if type(one) is str else one for one in value])
        return value if whole == value else whole
    return value if type(value) in _IMMUTABLE else copy.deepcopy(value)


class Encoder:
    """Text to ids and back, with added tokens matched or not. One per `Chat`; the heavy clone is made when hostile text first comes."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, control: Mapping[str, int]) -> None:
        self._tokenizer = tokenizer
        self._backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        self._control = dict(control)
        self._control_ids = frozenset(control.values())
        self._plain_backend: Any = None
        # A tokenizer may put a mark before the first word of whatever it encodes (Metaspace, "prefix space"). Text from the middle of a
        # prompt is then encoded behind an anchor, whose ids are taken off again. NUL merges with nothing.
        self._anchor = self.encode(_ANCHOR)
        self._marks_start = self.encode(f"{_ANCHOR}a") != [*self._anchor, *self.encode("a")]

    def encode_inner(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Encode text that does not stand at the start of a prompt."""
        if self._marks_start and text:
            ids = encode(_ANCHOR + text)
            if self._anchor and ids[: len(self._anchor)] == self._anchor:
                return ids[len(self._anchor) :]
        return encode(text)

    def encode(self, text: str) -> list[int]:
        """Encode with added tokens matched: what the tokenizer makes of a rendered template."""
        if self._backend is None:
            return list(self._tokenizer.encode(without_surrogates(text), add_special_tokens=False))
        return self._ids(self._backend, text)

    def encode_plain(self, text: str) -> list[int]:
        """Encode as ordinary text, whatever literals stand in it. No id that comes out is a control id."""
        if not text:
            return []
        ids = self.encode_inner(text, self._encode_unmatched)
        if self._control_ids.isdisjoint(ids):
            return ids
        # The model of the tokenizer itself makes a control id of this text (a word-level vocabulary, say). Break it at every character;
        # a single character that still is a control token cannot be shown and is left out.
        broken: list[int] = []
        for character in text:
            broken += [one for one in self.encode_inner(character, self._encode_unmatched) if one not in self._control_ids]
        return broken

    def _encode_unmatched(self, text: str) -> list[int]:
        if self._backend is None:
            return list(self._tokenizer.encode(without_surrogates(text), add_special_tokens=False, split_special_tokens=True))
        if self._plain_backend is None:
            self._plain_backend = self._clone_without_control_tokens()
        return self._ids(self._plain_backend, text)

    @staticmethod
    def _ids(backend: Any, text: str) -> list[int]:
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):  # half a surrogate pair, which JSON can hold and UTF-8 cannot
            ids = backend.encode(without_surrogates(text), add_special_tokens=False).ids
        return ids

    def _clone_without_control_tokens(self) -> Any:
        """A copy of the backend in which every control token counts as special, and special tokens are split like any text."""
        from tokenizers import Tokenizer

        state = json.loads(self._backend.to_str())
        state["truncation"] = state["padding"] = None
        for token in state["added_tokens"]:
            if token["content"] in self._control:
                token["special"] = True
        clone = Tokenizer.from_str(json.dumps(state))
        clone.encode_special_tokens = True
        return clone

    def decode(self, ids: Sequence[int], skip_special: bool) -> str:
        """Decode for people and parsers; ids without text are left out."""
        if self._backend is not None:
            text: str = self._backend.decode(ids if isinstance(ids, list) else list(ids), skip_special_tokens=skip_special)
            return text
        known = [one for one in ids if 0 <= one < len(self._tokenizer)]
        return str(self._tokenizer.decode(known, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False))

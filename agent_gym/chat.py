"""`Chat`: one tokenizer with its chat template, used so that no token is ever made twice.

Three promises are kept here, for every Hugging Face tokenizer that has a chat template:

* *What was shown is never rendered again.* `Chat.render` makes the ids of a whole prompt, `Chat.turn` only those that follow an action.
* *Ordinary text gets the template's own ids.* A new turn is rendered by the template behind a fixed dummy conversation, and what stands
  behind the dummy's content is encoded in one piece, so that merges across the border of template text and content come out as they do
  when the template prints the whole conversation.
* *Text from the world is only text.* Control tokens (special tokens, added tokens that the template prints, the markers of the tool
  format and of reasoning) come from the template alone; the same characters inside a message are encoded as ordinary text.

Templates differ: what one refuses or drops falls back to something it prints, and `Chat.notes` says so.

This is our own code because exact token ids over many turns are what the project is for; see `_skeleton.py` for how a turn is printed
without running the template again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym._encoder import Encoder, alternation, control_tokens, escaped
from agent_gym._skeleton import Skeleton, known_skeleton
from agent_gym._template import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Chat", "Message", "load_tokenizer", "tokenizer_fingerprint"]

Message = Mapping[str, Any]
"""A chat message: `role` and `content`; an assistant message may carry `token_ids` (sampled ids, spliced in as they are) instead.

Token ids may stand in a prompt that is rendered as a whole, not in a new turn. `"trusted": True` says that the content is the environment author's own: markers of the tool format and of reasoning may stand in it for what
they are, as they do in an instruction on how to call tools. Other special tokens, and those that end a turn, are guarded all the same. `"max_tokens"` on a message of a new turn says
where its content is cut.
"""

_GUARD_OPEN, _GUARD_CLOSE = "\ue000", "\ue001"  # private-use characters around the number of a control literal inside world text
_SPLICE_OPEN, _SPLICE_CLOSE = "\ue002", "\ue003"  # the same around the number of a kept action
_TURN_CACHE_ENTRIES = 512
_TURN_CACHE_CHARACTERS = 4096


@lru_cache(maxsize=32)
def _open_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Open a tokenizer once per process; the object is shared and never changed."""
    from transformers import PreTrainedTokenizerFast

    try:
        opened: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(name)
        return opened
    except Exception as first:  # noqa: BLE001  # whatever kept the light class from opening it, the general one may do
        from transformers import AutoTokenizer

        try:
            opened = AutoTokenizer.from_pretrained(name)
            return opened
        except Exception as second:
            raise ValueError(
                f"no tokenizer could be opened from {name!r}: {second} (PreTrainedTokenizerFast said: {first}). "
                "Pass a folder with tokenizer.json and tokenizer_config.json, a Hugging Face name, or a tokenizer object."
            ) from second


def load_tokenizer(tokenizer: str | Path | PreTrainedTokenizerBase | None = None) -> PreTrainedTokenizerBase:
    """Return a Hugging Face tokenizer.

    Args:
        tokenizer: an object (returned as it is), a folder, a Hugging Face name, or None or "default" for the project's own. Anything
            named by a string is opened once per process and shared.

    Returns:
        The tokenizer.

    Raises:
        ValueError: if nothing could be opened.
    """
    if tokenizer is None or tokenizer == "default":
        from agent_gym.tokenizers import DEFAULT_PATH

        return _open_tokenizer(str(DEFAULT_PATH))
    if isinstance(tokenizer, (str, Path)):
        return _open_tokenizer(str(tokenizer))
    return tokenizer


_FINGERPRINTS: weakref.WeakKeyDictionary[Any, tuple[Any, str]] = weakref.WeakKeyDictionary()


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return 16 hexadecimal digits that two tokenizers share when they give the same ids and print the same prompts.

    Args:
        tokenizer: any Hugging Face tokenizer.

    Returns:
        The start of a SHA-256 over vocabulary, merges, added tokens and chat template.
    """
    changeable = (len(tokenizer), json.dumps(tokenizer.chat_template, sort_keys=True), str(tokenizer.added_tokens_decoder))
    with contextlib.suppress(TypeError):  # an object that cannot be weakly referenced is simply asked again
        known = _FINGERPRINTS.get(tokenizer)
        if known is not None and known[0] == changeable:
            return known[1]
    digest = hashlib.sha256()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        for volatile in ("truncation", "padding", "post_processor"):  # set by calls, or unused: prompts are encoded without special tokens
            state.pop(volatile, None)
        digest.update(json.dumps(state, sort_keys=True).encode())
    else:
        digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
        digest.update(json.dumps(sorted((str(token), index) for index, token in tokenizer.added_tokens_decoder.items())).encode())
    digest.update(json.dumps(tokenizer.chat_template, sort_keys=True).encode())
    fingerprint = digest.hexdigest()[:16]
    with contextlib.suppress(TypeError):
        _FINGERPRINTS[tokenizer] = (changeable, fingerprint)
    return fingerprint


class Chat:
    """A tokenizer and its chat template.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        markers: literals of the tool format and of reasoning that text from the world must not forge. Those that are one token become
            control tokens; the others are shown with `<` as `&lt;` inside world text, or their first character as its number (`&#91;`).
        vocab_size: the number of rows of the model's embedding, when larger than `len(tokenizer)`.
        end_of_turn_ids: further ids at which the model stops (`generation_config.eos_token_id`).
        template_kwargs: passed on to the template (`enable_thinking=False`, say).
        tools: JSON schemas of the prompts that `render` gets, since a template may print turns differently where there are tools.

    Attributes:
        vocab_size: ids run from 0 to vocab_size - 1.
        pad_id: never an end-of-turn id; `vocab_size` where the vocabulary has none to spare.
        end_of_turn_ids: the ids that end an action, the one that the template prints first.
        notes: what had to fall back, one sentence each; empty for most templates.
        fingerprint: see `tokenizer_fingerprint`.

    Raises:
        ValueError: if the tokenizer has no chat template, or `vocab_size` is below `len(tokenizer)`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        markers: Iterable[str] = (),
        vocab_size: int | None = None,
        end_of_turn_ids: Iterable[int] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        markers = tuple(markers)
        if not tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path or type(tokenizer).__name__!r} has no chat template. Set `tokenizer.chat_template`, "
                "or pass the tokenizer of a chat model."
            )
        self.tokenizer = tokenizer
        self._printer = Template(tokenizer, template_kwargs or {}, tools)
        self.notes = self._printer.notes
        self._control = control_tokens(tokenizer, self._printer.printable(), tuple(markers))
        own = () if self._printer.shows_tool_role else ("<tool_response>", "</tool_response>")
        self._escapes = tuple(marker for marker in dict.fromkeys([*markers, *own]) if marker not in self._control)
        self._control_ids = frozenset(self._control.values())
        self._encoder = Encoder(tokenizer, self._control)
        self._control_pattern = alternation(self._control)
        self._hostile_pattern = self._watch_for()
        self._control_names = list(self._control)
        self._markers = frozenset(markers)
        self._skeletons: dict[tuple[str, ...], tuple[Skeleton | None, int]] = {}
        self._turn_cache: dict[str, list[int]] = {}

        self.vocab_size = len(tokenizer) if vocab_size is None else int(vocab_size)
        if self.vocab_size < len(tokenizer):
            raise ValueError(
                f"vocab_size={vocab_size} is below the tokenizer's {len(tokenizer)} ids; give the number of rows of the embedding"
            )
        self.fingerprint = tokenizer_fingerprint(tokenizer)
        self.end_of_turn_ids = self._find_end_of_turn(end_of_turn_ids)
        self.pad_id = self._find_pad()

    # ------------------------------------------------------------------------------------------------ prompts

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> list[int]:
        """Return the ids of a whole prompt, the opening of the assistant's turn included.

        Args:
            messages: the conversation. The `content` of each is text from the world; an assistant message with `token_ids` is spliced in
                as those ids.
            tools: JSON schemas in OpenAI's form, shown by the template, or by our own text where the template ignores them.

        Returns:
            The token ids.

        Raises:
            ValueError: if a message has no text and no token ids, or the template drops a kept action.
        """
        kept: list[Sequence[int]] = []
        safe: list[dict[str, Any]] = []
        for message in messages:
            if message.get("token_ids") is not None:
                self._check_role(message.get("role"))
                safe.append({"role": message["role"], "content": f"{_SPLICE_OPEN}{len(kept)}{_SPLICE_CLOSE}"})
                kept.append(message["token_ids"])
            else:
                safe.append(self._safe(message))
        text = self._printer.print(safe, self._safe_tools(tools))
        pieces = re.split(f"{_SPLICE_OPEN}([0-9]+){_SPLICE_CLOSE}", text)
        if [int(number) for number in pieces[1::2]] != list(range(len(kept))):
            raise ValueError(
                f"the chat template does not print the {len(kept)} kept actions of this prompt once each and in order; use context='append' or "
                "'window:K', which splice ids without it"
            )
        ids: list[int] = []
        last: int | None = None
        for index, piece in enumerate(pieces):
            if index % 2:
                action = [int(one) for one in kept[int(piece)]]
                ids += action
                last = action[-1] if action and action[-1] in self.end_of_turn_ids else None
            else:
                encoded = self._encode_printed(piece, inner=index > 0)
                ids += encoded if last is None else self._rest_of(encoded, last)
                last = None
        return ids

    def altered_message(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, *, behind_reply: bool = False
    ) -> int | None:
        """Find the first message whose content the template leaves out, repeats, moves or changes by as much as one character.

        The template prints the messages twice, once with marks in place of the contents; the first printing has to be the second with the
        contents put where the marks are.

        Args:
            messages: of a prompt, or of a turn; contents alone, no `token_ids`.
            tools: as in `render`; for a prompt.
            behind_reply: the messages are a turn, printed as `turn` prints it.

        Returns:
            Its index; None where every content stands in the prompt once, whole and in order.

        Raises:
            ValueError: for what is no message; whatever the template itself raises where it refuses them.
        """
        safe = [self._safe(message) for message in messages]
        marks = [f"agentgymmark{number}end" for number in range(len(safe))]

        def printed(contents: Sequence[str]) -> str:
            shown = [{**message, "content": content} for message, content in zip(safe, contents, strict=True)]
            return self._printer.print_turn(shown) if behind_reply else self._printer.print(shown, self._safe_tools(tools))

        def filled(contents: Sequence[str]) -> str:
            pieces = re.split("agentgymmark([0-9]+)end", skeleton)
            pieces[1::2] = [contents[int(number)] for number in pieces[1::2]]
            return "".join(pieces)

        skeleton = printed(marks)
        found = [int(number) for number in re.findall("agentgymmark([0-9]+)end", skeleton)]
        if found != list(range(len(safe))):
            return next((number for number in range(len(safe)) if found[number : number + 1] != [number]), len(safe) - 1)
        contents = [str(message["content"]) for message in safe]
        if printed(contents) == filled(contents):
            return None
        alone = ([content if at == number else mark for at, mark in enumerate(marks)] for number, content in enumerate(contents))
        return next((number for number, one in enumerate(alone) if printed(one) != filled(one)), 0)

    def turn(self, messages: Sequence[Message], *, closed: bool) -> list[int]:
        """Return the ids that follow an action: the rest of the assistant's turn, the new messages, the opening of the next turn.

        Args:
            messages: the environment's answer, in order; may be empty.
            closed: whether the action ended with an end-of-turn id. If not, the whole closing of the turn comes first.

        Returns:
            The token ids; work and size are those of the new text, whatever stands before it.
        """
        return self.show_turn(messages, closed=closed)[0]

    def show_turn(self, messages: Sequence[Message], *, closed: bool, last: int | None = None) -> tuple[list[int], tuple[Message, ...]]:
        """Do the same, and return the messages as they are shown: those with `max_tokens` may be cut.

        Args:
            messages: as in `turn`.
            closed: as in `turn`.
            last: the id that ended the action; where the new turn begins with the same token, it is not shown again (GLM stops at the token
                that begins a tool's turn).

        Returns:
            The token ids and the messages.
        """
        messages = tuple(messages)
        limit = min((message["max_tokens"] for message in messages if "max_tokens" in message), default=None)
        if limit is not None:
            limited, messages = messages, tuple(self._shortened(message) for message in messages)
            ids = self._turn_ids(messages)
            if len(ids) > limit:  # a whole turn within the limit holds no message beyond it, so that the common case encodes once
                messages = tuple(
                    {**shown, "content": self.truncate_text(given["content"], given["max_tokens"])} if "max_tokens" in given else shown
                    for shown, given in zip(messages, limited, strict=True)
                )
                ids = self._turn_ids(messages)
        else:
            ids = self._turn_ids(messages)
        return (self._rest_of(ids, last) if closed else list(ids)), messages

    def _rest_of(self, ids: list[int], last: int | None) -> list[int]:
        """What is left of a turn behind an action that ended: all behind the end of turn that the template closes it with."""
        if last is not None and ids[:1] == [last] and last not in (self._closing_id, self._inner_closing_id):
            return ids[1:]
        if self._closing_id is None:
            return list(ids)
        head = ids[: self._closing_length + 2]  # blanks before it may merge otherwise than they do alone
        closing = self._closing_id if self._closing_id in head else self._inner_closing_id
        return ids[head.index(closing) + 1 :] if closing in head else list(ids)

    def _shortened(self, message: Message) -> Message:
        """A message without its limit; text far beyond it is cut before anything is encoded."""
        content, limit = message["content"], message.get("max_tokens")
        if limit is not None and len(content) > 16 * limit:
            content = self.truncate_text(content, limit)
        return {key: content if key == "content" else value for key, value in message.items() if key != "max_tokens"}

    def _turn_ids(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a whole turn, from the cache if it was shown before."""
        if not messages:
            return self._encode_printed(self._printer.closing, inner=True)
        text, expected = self._print_turn(messages)
        ids = self._turn_cache.get(text)
        if ids is None:
            ids = self._encode_printed(text, expected, inner=True)
            if len(text) <= _TURN_CACHE_CHARACTERS:
                if len(self._turn_cache) >= _TURN_CACHE_ENTRIES:
                    self._turn_cache.pop(next(iter(self._turn_cache)), None)
                self._turn_cache[text] = ids
        return ids

    def _print_turn(self, messages: Sequence[Message]) -> tuple[str, int | None]:
        """The text of a turn behind the dummy reply, guards still in it, and its number of control tokens where that is known."""
        search = self._hostile_pattern.search
        contents = [message.get("content") for message in messages]
        if all(type(content) is str and not search(content) for content in contents) and all(len(message) == 2 for message in messages):
            roles = tuple(message["role"] for message in messages)
            known = self._skeletons.get(roles)
            skeleton, expected = known if known is not None else self._learn_skeleton(roles)
            if skeleton is not None:
                printed = skeleton.fill(contents)  # type: ignore[arg-type]  # every content is a str here
                if printed is not None:
                    return printed, expected
        return self._printer.print_turn([self._safe(message) for message in messages]), None

    def _learn_skeleton(self, roles: tuple[str, ...]) -> tuple[Skeleton | None, int]:
        if len(self._skeletons) >= 64:
            self._skeletons.clear()
        for role in roles:
            self._check_role(role)
        skeleton = known_skeleton(roles, self._printer, self._hostile_pattern) if len(roles) <= 16 else None
        expected = sum(len(self._control_pattern.findall(piece)) for piece in skeleton.pieces) if skeleton is not None else 0
        self._skeletons[roles] = (skeleton, expected)
        return skeleton, expected

    @staticmethod
    def _check_role(role: Any) -> None:
        if not isinstance(role, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}", role):
            raise ValueError(f"the role of a message is a word such as user, assistant, system or tool, not {role!r}")

    # ------------------------------------------------------------------------------------------------ text

    def encode_text(self, text: str) -> list[int]:
        """Encode text from the world.

        Args:
            text: anything.

        Returns:
            Token ids, none of them a control token.
        """
        if self._hostile_pattern.search(text):
            return self._encoder.encode_plain(self._unguard(self._guard_text(text)))
        ids = self._encoder.encode(text)
        return ids if self._control_ids.isdisjoint(ids) else self._encoder.encode_plain(text)

    def encode_action(self, text: str, end: str | None = None) -> list[int]:
        """Encode what a person or an expert writes as an action. Markers become their control tokens, and the end of turn closes it.

        Args:
            text: the reply, without its closing.
            end: the literal that ends it, if that is one of `end_of_turn_ids`; else the first of these does.

        Returns:
            Token ids; the last is the end of turn. Special tokens that are no marker are ordinary text here, and so is what ends a turn.
        """
        ids: list[int] = []
        at = 0
        special = self._special_pattern
        if special.search(text) is None:
            ids = self._encoder.encode(text)
        else:
            for match in self._control_pattern.finditer(text):
                ids += self._encoder.encode_plain(text[at : match.start()])
                name = match.group()
                ids += self._encoder.encode_plain(name) if special.fullmatch(name) else [self._control[name]]
                at = match.end()
            ids += self._encoder.encode_plain(text[at:])
        last = self._control.get(end) if end is not None else None
        if last is None or last not in self._end_set:
            return [*ids, self.end_of_turn_ids[0]] if self.end_of_turn_ids else ids
        return [*ids, last]

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """Return the text of token ids.

        Args:
            ids: token ids; those without text are left out.
            skip_special: leave special tokens out.

        Returns:
            The text, for people and for parsers; it never goes back into a prompt.
        """
        return self._encoder.decode(ids, skip_special)

    def truncate_text(self, text: str, max_tokens: int) -> str:
        """Cut text to a number of tokens, with a visible mark where something is missing.

        Args:
            text: anything.
            max_tokens: at least 1; the mark comes on top.

        Returns:
            The text itself when it is short enough, else its start and the mark.

        Raises:
            ValueError: if `max_tokens` is not positive.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
        if len(text) <= max_tokens and text.isascii():
            return text
        window = 8 * max_tokens + 64  # long enough for almost every text; widened where tokens are longer
        while True:
            part = text[:window]
            ids = self._encoder.encode_plain(part)
            if len(ids) > max_tokens:
                break
            if window >= len(text):
                return text
            window *= 4
        low = self._longest_start(part, ids, max_tokens)
        return f"{part[:low]}\n[... cut: {len(text) - low} more characters]"

    def _longest_start(self, text: str, ids: Sequence[int], max_tokens: int) -> int:
        """The length of the longest start of a text that has at most so many tokens, found from where its first tokens end.

        No offsets are needed, so any tokenizer will do; where the guess is right, as with byte-level tokenizers, two encodings are enough.
        """

        def fits(length: int) -> bool:
            return len(self._encoder.encode_plain(text[:length])) <= max_tokens

        low, high = 0, len(text)  # the first fits, the second does not
        probe = min(max(len(self.decode(ids[:max_tokens])), 1), high - 1)
        step, turned, before = 1, False, None
        while high - low > 1:  # from the guess in growing steps, and by bisection once the border has been passed
            fitted = fits(probe)
            low, high = (probe, high) if fitted else (low, probe)
            turned = turned or before not in (None, fitted)
            before = fitted
            probe = low + step if fitted else high - step
            step *= 2
            if turned or not low < probe < high:
                probe = (low + high) // 2
        return low

    def ends_turn(self, ids: Sequence[int]) -> bool:
        """Whether the last id ends the turn.

        Args:
            ids: an action.

        Returns:
            True if it does; False for an empty action.
        """
        return bool(len(ids)) and int(ids[-1]) in self._end_set

    def first_end(self, ids: Sequence[int]) -> int | None:
        """Return the place of the first end-of-turn id.

        Args:
            ids: an action.

        Returns:
            Its index, or None.
        """
        ends = self._end_set
        if not len(ids) or ends.isdisjoint(ids[:-1]):
            return len(ids) - 1 if len(ids) and ids[-1] in ends else None
        return next(index for index, one in enumerate(ids) if one in ends)

    def count_control(self, ids: Iterable[int]) -> int:
        """Return how many of the ids are control tokens.

        Args:
            ids: token ids.

        Returns:
            The count.
        """
        return sum(map(self._control_ids.__contains__, ids))

    # ------------------------------------------------------------------------------------------------ guarding

    def _safe(self, message: Message) -> dict[str, Any]:
        """A copy of the message in which control literals are guarded, and markers without a token escaped."""
        self._check_role(message.get("role"))
        if not isinstance(message.get("content"), str):
            raise ValueError(
                f"a message needs a string as `content`, not {message.get('content')!r} in {dict(message)!r:.300} (`token_ids` may stand instead only in "
                "a prompt that is rendered as a whole)"
            )
        if message.get("trusted"):
            content = message["content"]
            return {"role": message["role"], "content": self._special_pattern.sub(self._guarded, content)}
        return {key: self._guard(value) for key, value in message.items() if key != "trusted"}

    def _safe_tools(self, tools: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
        return [self._guard(dict(one)) for one in tools] if tools else None

    def _guard(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._guard_text(value) if self._hostile_pattern.search(value) else value
        if isinstance(value, Mapping):
            return {self._guard(key): self._guard(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._guard(item) for item in value]
        return value

    def _watch_for(self, literals: Iterable[str] | None = None) -> re.Pattern[str]:
        """What must not stand in text as it is: control literals, markers, our own private-use characters, half surrogate pairs."""
        own = (_GUARD_OPEN, _GUARD_CLOSE, _SPLICE_OPEN, _SPLICE_CLOSE)
        watched = (*self._control, *self._escapes) if literals is None else literals
        return re.compile(alternation([*watched, *own]).pattern + "|[\ud800-\udfff]")

    def _guard_text(self, text: str) -> str:
        return self._hostile_pattern.sub(self._guarded, text)

    def _guarded(self, match: re.Match[str]) -> str:
        name = match.group()
        if name in self._control:
            return f"{_GUARD_OPEN}{self._control_names.index(name)}{_GUARD_CLOSE}"
        if name in self._escapes:
            return escaped(name)
        if "\ud800" <= name <= "\udfff":
            return "\ufffd"
        return f"{_GUARD_OPEN}u{ord(name):x}{_GUARD_CLOSE}"  # our own private-use characters, when the world sends them

    def _unguard(self, text: str) -> str:
        def restore(match: re.Match[str]) -> str:
            code = match.group(1)
            return chr(int(code[1:], 16)) if code.startswith("u") else self._control_names[int(code)]

        return re.sub(f"{_GUARD_OPEN}(u[0-9a-f]+|[0-9]+){_GUARD_CLOSE}", restore, text)

    def _encode_printed(self, text: str, expected: int | None = None, *, inner: bool = False) -> list[int]:
        """Encode what the template printed. Only control tokens that stand in `text` itself, outside guards, come out as such."""
        if _GUARD_OPEN not in text:
            ids = self._encoder.encode_inner(text, self._encoder.encode) if inner else self._encoder.encode(text)
            # One too many or too few: content and template text, or the normaliser, made or broke a control token together.
            if self.count_control(ids) == (len(self._control_pattern.findall(text)) if expected is None else expected):
                return ids
        ids = []
        at = 0
        for match in self._control_pattern.finditer(text):
            ids += self._encoder.encode_plain(self._unguard(text[at : match.start()]))
            ids.append(self._control[match.group()])
            at = match.end()
        return ids + self._encoder.encode_plain(self._unguard(text[at:]))

    # ------------------------------------------------------------------------------------------------ ids of its own

    def _find_end_of_turn(self, further: Iterable[int]) -> tuple[int, ...]:
        closing = self._encoder.encode_inner(self._printer.closing, self._encoder.encode)
        eos = self.tokenizer.eos_token_id
        # The template may close a turn with ordinary text (a line break): that alone ends no action, unless there is nothing else.
        place = next(
            (at for at, one in enumerate(closing) if one in self._control_ids or one == eos), 0 if closing and eos is None else None
        )
        self._closing_id: int | None = None if place is None else closing[place]
        self._closing_length = len(closing)
        self._inner_closing_id = self._find_inner_closing()
        first = [] if self._closing_id is None else [self._closing_id]
        ends = tuple(dict.fromkeys([*first, *([] if eos is None else [int(eos)]), *(int(one) for one in further)]))
        if outside := [one for one in ends if not 0 <= one < self.vocab_size]:
            raise ValueError(f"end_of_turn_ids {outside} lie outside the vocabulary of {self.vocab_size} ids")
        self._end_set = frozenset(ends)
        special = [
            str(token)
            for token in self.tokenizer.added_tokens_decoder.values()
            if getattr(token, "special", False) and str(token) not in self._markers
        ]
        ending = [name for name, one in self._control.items() if one in self._end_set]
        self._special_pattern = self._watch_for([*special, *ending])
        return ends

    def _find_inner_closing(self) -> int | None:
        """What closes a reply that something follows, where that is another token than behind the last reply (gpt-oss). None for most templates.

        It is the first of the control tokens that stand behind a reply whatever comes next; the last of these begins the next turn.
        """
        follow = self._printer.print_turn([{"role": "user", "content": "a"}])
        if self._closing_id is None or follow.startswith(self._printer.closing):
            return None
        turns = [self._encode_printed(text, inner=True) for text in (follow, self._printer.print_turn([]))]
        if any(self._closing_id in turn[: self._closing_length + 2] for turn in turns):
            return None
        same = next((at for at, (one, other) in enumerate(zip(*turns, strict=False)) if one != other), min(map(len, turns)))
        control = [one for one in turns[0][:same] if one in self._control_ids]
        return control[0] if len(control) > 1 else None

    def _find_pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        if pad is not None and pad not in self._end_set and 0 <= pad < self.vocab_size:
            return int(pad)
        used = {self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.tokenizer.unk_token_id, *self._end_set}
        for index, token in sorted(self.tokenizer.added_tokens_decoder.items()):
            if token.special and index not in used and str(token) not in self._printer.text and index < self.vocab_size:
                return int(index)
        return self.vocab_size

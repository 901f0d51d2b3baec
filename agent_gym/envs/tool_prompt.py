"""How a model is told of its tools: by its chat template where that teaches our format of calls, else by a paragraph of the system message.

Schemas are text of the world, so control tokens and markers that stand in them are shown as text; the paragraph around them is our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent_gym.chat import Chat
from agent_gym.tools.formats import TemplateFormat, ToolCallFormat
from agent_gym.tools.parsing import detect_format

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["PromptEnd", "ToolPrompt", "generation_prefix", "turn_end_ids"]


class ToolPrompt:
    """The part of a first prompt that describes the tools.

    Args:
        tokenizer: whose chat template may teach them.
        tool_format: how calls are written.
        schemas: of the tools, in OpenAI's form.
        markers: further literals that the schemas must not forge.
        template_kwargs: of the chat template.

    Attributes:
        tools: the schemas for the chat template to show, or None where it does not teach this format.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tool_format: ToolCallFormat,
        schemas: Sequence[Mapping[str, Any]],
        *,
        markers: Iterable[str] = (),
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._format = tool_format
        self._schemas = [dict(one) for one in schemas]
        self.tools = self._schemas if self._is_taught(tokenizer, template_kwargs or {}) else None
        literals = (*tool_format.markers, *markers, *map(str, tokenizer.added_tokens_decoder.values()))
        self._quoted = [] if self.tools is not None else _without_literals(self._schemas, literals)

    def system_text(self, own: str) -> str:
        """Return the text of the system message.

        Args:
            own: what the environment has to say.

        Returns:
            It, and behind it how to call the tools where the template does not say so.
        """
        if self.tools is not None or not self._schemas:
            return own
        return f"{own}\n\n{self._format.instructions(self._quoted)}".strip()

    def _is_taught(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any]) -> bool:
        """Whether the chat template itself tells the model of the tools and belongs to this format."""
        template = tokenizer.chat_template or ""
        text = "\n".join(template.values()) if isinstance(template, dict) else template
        if not isinstance(self._format, TemplateFormat) and detect_format(text) != self._format.name:
            return False
        try:
            shown = tokenizer.apply_chat_template(
                [{"role": "user", "content": "?"}], tools=list(self._schemas), tokenize=False, **template_kwargs
            )
        except Exception:  # noqa: BLE001  # a template refuses in its own words; then the tools are described by our own text
            return False
        return all(one["function"]["name"] in str(shown) for one in self._schemas)


def generation_prefix(chat: Chat, role: str = "user") -> str:
    """Return what the template writes at the beginning of the assistant's turn, which may open reasoning.

    Args:
        chat: tokenizer and chat template.
        role: of the message before it.

    Returns:
        The text.
    """
    probe = "agentgymprefixprobe"
    message = {"role": role, "content": probe}
    return chat.decode(chat.render([message]) if role == "user" else chat.turn([message], closed=True)).rpartition(probe)[2]


class PromptEnd:
    """What prompts end with, which may open reasoning behind a user's message and not behind a tool's (DeepSeek).

    Args:
        chat: tokenizer and chat template.
    """

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._user = generation_prefix(chat)
        self._tool = generation_prefix(chat, "tool")
        self._tail = 2 * max(len(self._user), len(self._tool)) + 16  # ids whose text is long enough

    def of(self, prompt_ids: NDArray[np.int64]) -> str:
        """Return the end of a prompt, from the last message's text on. It is the template's own, so no text of the world forges it.

        Args:
            prompt_ids: int64, shape (length,), without padding.

        Returns:
            The text.
        """
        if self._tool.endswith(self._user) or not len(prompt_ids):
            return self._user
        text = self._chat.decode(prompt_ids[-self._tail :].tolist())
        return max((one for one in (self._user, self._tool) if text.endswith(one)), key=len, default=self._user)


def turn_end_ids(tokenizer: PreTrainedTokenizerBase, tool_format: ToolCallFormat) -> tuple[int, ...]:
    """Return the ids of the tokens that end a reply in this format, beside those that the chat template shows.

    Args:
        tokenizer: that may hold them.
        tool_format: how calls are written.

    Returns:
        The ids, for `AgentEnv(end_of_turn_ids=...)`.
    """
    added = tokenizer.get_added_vocab()
    return tuple(int(added[one]) for one in tool_format.turn_ends if one in added)


def _without_literals(value: Any, literals: Iterable[str]) -> Any:
    """A copy of nested data in whose texts, keys included, none of the literals stands: `<` becomes `&lt;`, as `Chat` shows markers."""
    names = sorted({one for one in literals if one.strip()}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def without(part: Any) -> Any:
        if isinstance(part, str):
            if pattern.search(part):
                part = part.replace("<", "&lt;")
            return pattern.sub(lambda match: f"{match.group()[0]} {match.group()[1:]}", part)  # those that begin otherwise
        if isinstance(part, Mapping):
            return {without(key): without(item) for key, item in part.items()}
        return [without(item) for item in part] if isinstance(part, (list, tuple)) else part

    return without(value)

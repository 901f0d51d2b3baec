"""The contract: `AgentEnv`, a `gymnasium.Env` whose observations and actions are token ids.

An author writes two methods, `_begin` and `_respond`, in terms of text or messages. The base class does the rest: prompts with exact
token ids, padding, seeds, limits, rendering and an `info` whose keys and types never change.

The step-level process (Agent-R1, arXiv 2511.14460): the *state* is the prompt that the environment chose to show, the *action* is the
model's whole reply as the ids it sampled, and the environment alone decides what is shown next. With the default context the next prompt
is, id for id, the last prompt, the action, and the new turn.

    class Echo(AgentEnv):
        def _begin(self, options):
            return Observation(text="Say hello.")

        def _respond(self, action):
            won = "hello" in action.text
            return Outcome(Observation(text="Good." if won else "Once more."), reward=float(won), terminated=won)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from agent_gym._actions import action_ids, world_ids
from agent_gym._encoder import own_copy, without_surrogates
from agent_gym._moments import EnvState, put_back, taken_from
from agent_gym._names import nearest
from agent_gym.chat import Chat, Message, load_tokenizer
from agent_gym.compat import let_text_through_array_conversion
from agent_gym.context import ContextPolicy, Exchange, History, Summarise, TokenBudget, Window, parse_context
from agent_gym.outcomes import Action, EnvFault, EnvTimeout, Observation, Outcome, PromptTooLong, TaskError
from agent_gym.spaces import TokenBox
from agent_gym.trajectory import StopReason

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Action", "AgentEnv", "EnvFault", "EnvState", "EnvTimeout", "Message", "Observation", "Outcome", "PromptTooLong", "TaskError"]

IdArray = NDArray[np.int64]
StepResult = tuple[IdArray, float, bool, bool, dict[str, Any]]
Prompt = tuple[int, ...] | Sequence[Message] | None
_OUTCOME_INFO = frozenset({"stop_reason", "is_success", "reward_parts", "feedback", "action_valid", "state_key"})
_LIMITS = frozenset(
    {StopReason.RUNNING, StopReason.MAX_TURNS, StopReason.TIME_LIMIT, StopReason.CONTEXT_LIMIT, StopReason.DEADLINE, StopReason.ENV_FAULT}
)


class AgentEnv(gymnasium.Env[IdArray, IdArray]):
    """A task for a language-model agent.

    Args:
        split: which tasks: "train", "validation", "test" (environments may name others).
        tokenizer: a Hugging Face tokenizer, its folder or name; None for the project's own.
        context: what is shown next: "append", "window:K", "token_budget:N", "rebuild", or a policy of `agent_gym.context`, `summarise(...)` among them.
        markers: literals that text from the world must not forge (see `Chat`).
        tools: JSON schemas that the chat template shows in the first prompt.
        max_turns: after so many steps the episode is truncated.
        max_observation_tokens: places of the observation space; a prompt beyond it ends the episode.
        max_action_tokens: places of the action space.
        max_tool_result_tokens: where the result of one tool call is cut, with a visible mark.
        expert_actions: put the expert's next action into `info["expert_action"]`.
        render_mode: None or "ansi".
        vocab_size: rows of the model's embedding, when larger than the tokenizer.
        end_of_turn_ids: further ids at which the model stops.
        template_kwargs: passed on to the chat template.

    Attributes:
        chat: tokenizer and chat template.
        context: the context policy.
        history: the running episode's prompt, actions and answers.
        task_id: set by `_begin`.
        turn: steps taken in this episode.
        fault: the fault that ended this episode, None where none did.
        tools: the schemas shown by the template, or None.
        split, render_mode, max_turns, max_observation_tokens, max_action_tokens, max_tool_result_tokens: as given.

    Raises:
        ValueError: for an unusable tokenizer, split, context, size or render mode.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # Gymnasium declares it so
    splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    reward_part_names: ClassVar[tuple[str, ...]] = ("task",)
    """Keys of `info["reward_parts"]`. An outcome that names no parts puts its reward on the first."""
    extra_info: ClassVar[Mapping[str, Any]] = {}
    """Further info keys with their defaults; a value must have its default's type."""
    option_names: ClassVar[tuple[str, ...]] = ("index", "task")
    """Keys that `reset(options=...)` understands."""
    setting_names: ClassVar[tuple[str, ...]] = ("dataset", "level")
    """Info keys that say where a task is from; evaluations write their values beside the figures."""
    breakdown_names: ClassVar[tuple[str, ...]] = ()
    """Info keys whose values are kinds of task; evaluations give success for each kind."""
    metric_names: ClassVar[tuple[str, ...] | None] = None
    """The numbers of `extra_info` that are metrics of an episode; evaluations show them beside success, in this order. None takes all numbers."""
    chance: bool = False
    """Chance decides too: the best play may lose, and a lucky one win. Conformance then asks the expert to win at times, and not always."""
    baselines: ClassVar[Mapping[str, Callable[[int], Callable[[Any, int], str]]]] = {}
    """Players without a model that figures can be held against: name -> (seed) -> script for `ScriptedPolicy`. `agent-gym eval --model NAME` plays one."""

    def __init__(
        self,
        *,
        split: str = "train",
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        context: str | ContextPolicy = "append",
        markers: Iterable[str] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        max_turns: int = 5,
        max_observation_tokens: int = 8192,
        max_action_tokens: int = 512,
        max_tool_result_tokens: int = 512,
        expert_actions: bool = False,
        render_mode: str | None = None,
        vocab_size: int | None = None,
        end_of_turn_ids: Iterable[int] = (),
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}, not {split!r}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None or one of {self.metadata['render_modes']}, not {render_mode!r}")
        sizes = {
            "max_turns": max_turns,
            "max_observation_tokens": max_observation_tokens,
            "max_action_tokens": max_action_tokens,
            "max_tool_result_tokens": max_tool_result_tokens,
        }
        for name, size in sizes.items():
            if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{name} must be a positive whole number, not {size!r}")
        self.split = split
        self.render_mode = render_mode
        self.max_turns = int(max_turns)
        self.max_observation_tokens = int(max_observation_tokens)
        self.max_action_tokens = int(max_action_tokens)
        self.max_tool_result_tokens = int(max_tool_result_tokens)
        self.tools = list(tools) if tools else None
        self.chat = Chat(
            load_tokenizer(tokenizer),
            markers=markers,
            vocab_size=vocab_size,
            end_of_turn_ids=end_of_turn_ids,
            template_kwargs=template_kwargs,
            tools=self.tools,
        )
        can_rebuild = type(self)._rebuild is not AgentEnv._rebuild
        self.context = parse_context(context, self._rebuilt if can_rebuild else None)
        bind = getattr(self.context, "bound", None)
        if bind is not None:
            self.context = bind(self)
        self._prompt_room = min(self.max_observation_tokens, int(getattr(self.context, "budget", self.max_observation_tokens)))
        self.observation_space: TokenBox = TokenBox(self.max_observation_tokens, self.chat.vocab_size, self.chat.pad_id)  # type: ignore[assignment]  # Gymnasium's Space is invariant
        self.action_space: TokenBox = TokenBox(self.max_action_tokens, self.chat.vocab_size, self.chat.pad_id)  # type: ignore[assignment]  # the same
        self._highest_id = max(self.chat.vocab_size - 1, self.chat.pad_id)
        self.history = History()
        self.task_id = ""
        self.turn = 0
        self.fault: EnvFault | None = None
        self._expert_actions = expert_actions
        self._expert: Callable[[], str] | None = None
        self._prompt = np.full(self.max_observation_tokens, self.chat.pad_id, dtype=np.int64)
        self._length = 0
        self._running = False
        self._state_key = ""

    # ------------------------------------------------------------------------------------------------ for authors

    def _begin(self, options: dict[str, Any]) -> Observation:
        """Start a task drawn with `self.np_random`, or chosen by `options`, set `self.task_id`, and say what the model sees first.

        Args:
            options: of `reset`; only keys in `option_names`.

        Returns:
            The first prompt.
        """
        raise NotImplementedError

    def _respond(self, action: Action) -> Outcome:
        """Answer an action. The model's mistakes are answered, the world's raise `EnvFault`.

        Args:
            action: the model's reply.

        Returns:
            What came of it.
        """
        raise NotImplementedError

    async def _arespond(self, action: Action) -> Outcome:
        """Answer an action in an event loop; the same as `_respond` unless overridden.

        Args:
            action: the model's reply.

        Returns:
            What came of it.
        """
        return self._respond(action)

    def _rebuild(self) -> list[Message]:
        """Make the whole prompt from the state, for `context="rebuild"`.

        Returns:
            The messages.
        """
        raise NotImplementedError

    def _rebuilt(self, _history: History) -> list[Message]:
        return self._rebuild()  # a method, since an environment with a lambda in it cannot be pickled

    def expert(self) -> Callable[[], str] | None:
        """Return a function that gives the text of the next right action in the present state, or None if there is no expert.

        Returns:
            The function; it is asked anew at each step of the running episode.
        """
        return None

    def _get_state(self) -> Any:
        """Return the author's part of the episode, for `get_state`: a value that later steps leave alone."""
        raise NotImplementedError(f"{type(self).__name__} cannot return to an earlier state: it defines no _get_state and _set_state")

    def _set_state(self, state: Any) -> None:
        """Return to what `_get_state` gave, maybe in another environment that was made with the same keywords."""
        raise NotImplementedError(f"{type(self).__name__} cannot return to an earlier state: it defines no _get_state and _set_state")

    @property
    def num_tasks(self) -> int | None:
        """The number of tasks that `reset(options={"index": i})` knows, None where tasks are generated without end."""
        return None

    def task_seeds(self, split: str | None = None, n: int = 10_000) -> list[int]:
        """Return seeds that name tasks of a split; a seed names another task in each split.

        Args:
            split: the environment's own when None.
            n: how many.

        Returns:
            `n` different seeds.

        Raises:
            ValueError: for an unknown split.
        """
        if split is not None and split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}, not {split!r}")
        return list(range(n))

    # ------------------------------------------------------------------------------------------------ Gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[IdArray, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of the generator that draws tasks; None goes on drawing.
            options: `{"index": i}` or `{"task": row}` choose the task.

        Returns:
            The first prompt, int64, shape (max_observation_tokens,), right-padded; and info.

        Raises:
            ValueError: for an unknown option, or if the first prompt does not fit.
            EnvFault: if the world is broken.
        """
        super().reset(seed=seed)
        let_text_through_array_conversion()
        options = dict(options or {})
        for name in options:
            if name not in self.option_names:
                raise TaskError(
                    f"options.{name}",
                    f"reset does not know the option {name!r}; it takes {', '.join(self.option_names)}{nearest(str(name), self.option_names)}",
                )
        self._running = False
        self.fault = None
        self.turn = 0
        self.history = History()
        first = self._begin(options)
        messages = first.as_messages()
        ids = world_ids(first.token_ids, self.chat.vocab_size) if first.token_ids is not None else self.chat.render(messages, self.tools)
        if not self._show(ids):
            if self._prompt_room < self.max_observation_tokens:
                raise PromptTooLong(
                    "prompt",
                    f"the first prompt of task {self.task_id!r} has {len(ids)} tokens, and the context's budget is {self._prompt_room}: the task is never dropped; "
                    f"make the environment with a budget well above {len(ids)} tokens (context='token_budget:N') or a shorter prompt",
                )
            raise PromptTooLong(
                "prompt",
                f"the first prompt of task {self.task_id!r} has {len(ids)} tokens, and max_observation_tokens is {self.max_observation_tokens}; "
                "make the environment with a larger max_observation_tokens or a shorter prompt",
            )
        self.history = History(tuple(ids), messages)
        self._running = True
        self._expert = self.expert() if self._expert_actions else None
        text = _text_of(messages)
        self._state_key = text
        return self._observe(), self._info(text, {}, 0.0, StopReason.RUNNING, rewritten=False, dropped=0)

    def step(self, action: Any) -> StepResult:
        """Act.

        Args:
            action: token ids: an array as long as the action space (padded), or a shorter array, a list or a `Generation` (taken whole).

        Returns:
            The next prompt, int64, shape (max_observation_tokens,), right-padded; reward; terminated; truncated; info.

        Raises:
            gymnasium.error.InvalidAction: for floats, ids outside the space, or too many of them.
            gymnasium.error.ResetNeeded: after the end of the episode.
        """
        accepted, dropped = self._accept(action)
        begun = self.turn
        try:
            outcome = self._respond(accepted)
            turn = self._note_exchange(accepted, outcome)
            prompt = None if turn is None else self.context.next_prompt(self.history)
        except EnvFault as fault:
            return self._end_by_fault(fault, begun + 1, dropped)
        return self._conclude(accepted, outcome, turn, prompt, dropped)

    async def astep(self, action: Any) -> StepResult:
        """Act, awaiting tools that wait; the same trajectories as `step`.

        Args:
            action: as in `step`.

        Returns:
            As `step`.
        """
        accepted, dropped = self._accept(action)
        begun = self.turn
        try:
            outcome = await self._arespond(accepted)
            turn = self._note_exchange(accepted, outcome)
            prompt: Prompt = None
            if turn is not None:
                waiting = getattr(self.context, "anext_prompt", None)
                prompt = self.context.next_prompt(self.history) if waiting is None else await waiting(self.history)
        except EnvFault as fault:
            return self._end_by_fault(fault, begun + 1, dropped)
        return self._conclude(accepted, outcome, turn, prompt, dropped)

    def render(self) -> str | None:
        """Return the prompt as text, or None without `render_mode="ansi"`.

        Returns:
            The text.
        """
        return self.chat.decode(self.prompt_ids.tolist()) if self.render_mode == "ansi" else None

    # ------------------------------------------------------------------------------------------------ for people and trainers

    @property
    def prompt_ids(self) -> IdArray:
        """The present prompt, int64, shape (observation_length,), a copy."""
        return self._prompt[: self._length].copy()

    @property
    def end_of_turn_ids(self) -> tuple[int, ...]:
        """The ids that end an action; a policy stops at exactly these."""
        return self.chat.end_of_turn_ids

    @property
    def tokenizer_fingerprint(self) -> str:
        """See `agent_gym.chat.tokenizer_fingerprint`."""
        return self.chat.fingerprint

    def get_state(self) -> EnvState:
        """Return the present moment of the episode, random generator included; NotImplementedError where the environment knows no way back.

        Returns:
            A value for `set_state`, here or in another environment made with the same keywords.
        """
        return taken_from(self)

    def set_state(self, state: EnvState) -> IdArray:
        """Return to a moment: from there on, the same actions give the same bytes.

        Args:
            state: from `get_state`.

        Returns:
            The prompt of that moment, as `reset` returns it: int64, shape (max_observation_tokens,).

        Raises:
            ValueError: for the state of another class or tokenizer, or a prompt that does not fit.
        """
        put_back(self, state)
        self._show(state.prompt)
        self._expert = self.expert() if self._expert_actions else None
        return self._observe()

    def encode_action(self, text: str) -> list[int]:
        """Return the ids of a reply written by hand, closed by the end of turn.

        Args:
            text: the reply.

        Returns:
            Token ids for `step`.
        """
        return self.chat.encode_action(text)

    def decode(self, observation: Sequence[int] | IdArray, info: Mapping[str, Any] | None = None) -> str:
        """Return an observation as text.

        Args:
            observation: ids, int64 of shape (n,), padded or not.
            info: that came with it; without it, trailing padding is taken off.

        Returns:
            The text.
        """
        length = None if info is None else int(info["observation_length"])
        return self.chat.decode(self.observation_space.unpad(observation, length).tolist())

    # ------------------------------------------------------------------------------------------------ the base class's own work

    def _accept(self, action: Any) -> tuple[Action, int]:
        """Check an action, take its padding and what stands behind the end of turn off, and decode it."""
        if not self._running:
            raise ResetNeeded("the episode is over, or has not begun; call reset() before step()")
        listed = action_ids(action, self.action_space, self._highest_id)
        end = self.chat.first_end(listed)
        kept = listed if end is None else listed[: end + 1]
        return Action(tuple(kept), self.chat.decode(kept if end is None else kept[:-1])), len(listed) - len(kept)

    def _note_exchange(self, action: Action, outcome: Outcome) -> Exchange | None:
        """Count the turn and note the exchange, for the context policy to see; None where the environment rewrites the whole prompt itself."""
        if not isinstance(outcome, Outcome):
            raise TypeError(f"{type(self).__name__}._respond must return an Outcome, not {outcome!r:.200}")
        self.turn += 1
        observation = outcome.observation
        if observation.rewrite:
            return None
        messages = observation.as_messages()
        if observation.token_ids is not None:
            turn_ids = world_ids(observation.token_ids, self.chat.vocab_size)
        else:
            closed = self.chat.ends_turn(action.token_ids)
            turn_ids, messages = self.chat.show_turn(messages, closed=closed, last=action.token_ids[-1] if closed else None)
        exchange = Exchange(action.token_ids, action.text, tuple(turn_ids), messages)
        self.history.exchanges.append(exchange)
        self.history.ended = bool(outcome.terminated)
        return exchange

    def _end_by_fault(self, fault: EnvFault, turn: int, dropped: int) -> StepResult:
        """End the episode: the world broke in the middle of the step."""
        self.turn, self._running, self.fault = turn, False, fault
        info = self._info(f"environment fault: {fault}", {}, 0.0, StopReason.ENV_FAULT, rewritten=False, dropped=dropped)
        return self._observe(), 0.0, False, True, info

    def _conclude(self, action: Action, outcome: Outcome, turn: Exchange | None, prompt: Prompt, dropped: int) -> StepResult:
        """Make the next prompt, apply the limits and fill info."""
        reward, terminated, truncated = float(outcome.reward), bool(outcome.terminated), False
        fitted, rewritten, messages = self._advance(action, outcome.observation, turn, prompt)
        if terminated:
            reason = StopReason(
                outcome.info.get("stop_reason", StopReason.SUCCESS if outcome.info.get("is_success") else StopReason.FAILURE)
            )
            if reason in _LIMITS:
                raise ValueError(
                    f"an Outcome with terminated=True has stop_reason {reason.value!r}, which is a limit; limits are the base class's business"
                )
        elif not fitted:
            reason, truncated = StopReason.CONTEXT_LIMIT, True
        elif self.turn >= self.max_turns:
            reason, truncated = StopReason.MAX_TURNS, True
        else:
            reason = StopReason.RUNNING
        self._running = not (terminated or truncated)
        text = _text_of(messages)
        if fitted:
            self._state_key = str(outcome.info.get("state_key", text))
        # A prompt that does not fit leaves the last one in place: no continuation of it, which is what this key says.
        info = self._info(text, outcome.info, reward, reason, rewritten=rewritten or not fitted, dropped=dropped)
        return self._observe(), reward, terminated, truncated, info

    def _advance(
        self, action: Action, observation: Observation, turn: Exchange | None, prompt: Prompt
    ) -> tuple[bool, bool, tuple[Message, ...]]:
        """Make the next prompt.

        Returns whether it fits (if not, the last one stays), whether it was rewritten, and the messages as shown.
        """
        if turn is None:
            messages = observation.as_messages()
            ids = (
                world_ids(observation.token_ids, self.chat.vocab_size)
                if observation.token_ids is not None
                else self.chat.render(messages, self.tools)
            )
            fitted = self._show(ids)
            if fitted:
                self.history = History(tuple(ids), messages)
            return fitted, True, messages
        if prompt is None:
            return self._extend(action.token_ids, turn.turn_ids), False, turn.messages
        return self._show(prompt if isinstance(prompt, tuple) else self.chat.render(prompt, self.tools)), True, turn.messages

    def _answer_room(self, action_tokens: int) -> int | None:
        """Tokens that the newest answer may have where all older turns are dropped; None where the context drops none, or makes its own prompts.

        For environments that cut what they show: an answer within it never ends the episode by CONTEXT_LIMIT.
        """
        if not isinstance(self.context, (Window, TokenBudget, Summarise)):
            return None
        summary = self.context.reserve if isinstance(self.context, Summarise) else 0
        return self._prompt_room - len(self.history.head_ids) - summary - action_tokens

    def _show(self, ids: Sequence[int]) -> bool:
        """Make these ids the prompt, if they fit."""
        if len(ids) > self._prompt_room:
            return False
        self._prompt[: len(ids)] = ids
        self._prompt[len(ids) : self._length] = self.chat.pad_id
        self._length = len(ids)
        return True

    def _extend(self, action_ids: Sequence[int], turn_ids: Sequence[int]) -> bool:
        """Append to the prompt, if it fits. Work is that of the new ids."""
        end = self._length + len(action_ids) + len(turn_ids)
        if end > self._prompt_room:
            return False
        self._prompt[self._length : end] = [*action_ids, *turn_ids]
        self._length = end
        return True

    def _observe(self) -> IdArray:
        return self._prompt.copy()

    def _info(
        self, feedback: str, given: Mapping[str, Any], reward: float, reason: StopReason, *, rewritten: bool, dropped: int
    ) -> dict[str, Any]:
        if unknown := given.keys() - _OUTCOME_INFO - self.extra_info.keys():
            known = sorted({*_OUTCOME_INFO, *self.extra_info})
            raise ValueError(
                f"info keys {sorted(unknown)} of an Outcome are unknown to {type(self).__name__}: declare them in extra_info, or use {known}"
            )
        parts = dict.fromkeys(self.reward_part_names, 0.0)
        named = given.get("reward_parts")
        if named is None:
            if self.reward_part_names:
                parts[self.reward_part_names[0]] = reward
        else:
            for name, value in named.items():
                if name not in parts:
                    raise ValueError(
                        f"reward part {name!r} is not one of {type(self).__name__}.reward_part_names: {self.reward_part_names}"
                    )
                parts[name] = float(value)
        info: dict[str, Any] = {
            "observation_length": self._length,
            "turn": self.turn,
            "context_rewritten": rewritten,
            "task_id": without_surrogates(str(self.task_id)),
            "state_key": without_surrogates(self._state_key),
            "feedback": without_surrogates(str(given.get("feedback", feedback))),
            "action_valid": bool(given.get("action_valid", True)),
            "dropped_ids": dropped,
            "reward_parts": parts,
            "is_success": bool(given.get("is_success", False)),
            "stop_reason": reason,
            "env_fault": reason is StopReason.ENV_FAULT,
            "expert_action": self._expert() if self._expert is not None and self._running else "",
        }
        for name, default in self.extra_info.items():
            value = given.get(name, default)
            if type(value) is not type(default):
                raise TypeError(
                    f"info[{name!r}] of {type(self).__name__} must be {type(default).__name__} as its default is, not {value!r}"
                )
            info[name] = own_copy(value)
        return info


def _text_of(messages: Sequence[Message]) -> str:
    """The contents of messages as one text for people."""
    return "\n".join(str(message.get("content", "")) for message in messages)

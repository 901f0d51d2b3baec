"""A Hermes tool step: as text (parse, validate, call, answer), and with ids. Arguments and results differ every time.

    python benchmarks/tool_step.py

Goals: the text step costs at most 20 microseconds above the tool itself; the step with ids costs at most 1.5 times one decode, one encode
and one padded copy of the same texts, measured alone in the same run, with the turn cache hit in under 1 % of the steps.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from clock import Clock, show

from agent_gym.core import Action
from agent_gym.envs.tool import ToolEnv
from agent_gym.tools import tool

STEPS, EPISODES = 15, 100


def sentence(name: str, year: int) -> str:
    return (
        f"In {year} the records name {name} as keeper of the northern archive, with {year % 97} letters and {year % 89} maps in the house."
    )


@tool
def look_up(name: str, year: int) -> str:
    """Look up what a person did in a year.

    Args:
        name: The person.
        year: The year.
    """
    return sentence(name, year)


@tool(name="look_up")
def look_up_all(name: str, year: int) -> str:
    """Look up what a person did in three years.

    Args:
        name: The person.
        year: The first year.
    """
    return "\n\n".join(
        f"[{number}] Archive {year + number}\n{sentence(name, year + number)} {sentence(name, year - number)}" for number in (1, 2, 3)
    )


def call(number: int) -> str:
    return f'<tool_call>\n{{"name": "look_up", "arguments": {{"name": "Person {number}", "year": {1000 + number}}}}}\n</tool_call>'


def measure(what_comes: str, tool_: Any, name: str, tokenizer: str | None) -> None:
    env = ToolEnv(
        tools=[tool_],
        tasks=[{"question": "Who kept the archive?", "answer": "x"}],
        tokenizer=tokenizer,
        max_turns=STEPS + 1,
        max_observation_tokens=32_768,  # room for all turns, so that no result is cut
    )
    env.reset(seed=0)
    encodings = encoded = 0
    encode_printed = env.chat._encode_printed

    def counted(text: str, expected: int | None = None, *, inner: bool = False) -> list[int]:
        nonlocal encodings
        encodings += 1
        return encode_printed(text, expected, inner=inner)

    env.chat._encode_printed = counted  # type: ignore[method-assign]
    least = dict.fromkeys(("tool", "text", "ids", "floor"), float("inf"))
    for episode in range(EPISODES):
        numbers = range(episode * STEPS, (episode + 1) * STEPS)
        actions = [Action((), call(number)) for number in numbers]
        ids = [env.encode_action(call(number)) for number in numbers]
        # The floor is measured on texts of its own: the tokenizer caches words, and a text that was encoded a moment ago is cheaper.
        others = range(10**6 + episode * STEPS, 10**6 + (episode + 1) * STEPS)
        spoken = [env.chat._print_turn([{"role": "tool", "content": tool_.function(f"Person {n}", 1000 + n)}])[0] for n in others]
        env.reset(seed=0)

        def floor(number: int) -> None:
            env.chat.decode(ids[number][:-1])  # noqa: B023  # called at once
            env.chat._encoder.encode(spoken[number])  # noqa: B023
            env._prompt.copy()

        for what, function in (
            ("tool", lambda number: tool_.function(f"Person {number}", 1000 + number)),
            ("text", lambda number: env._respond(actions[number])),  # noqa: B023
            ("ids", lambda number: env.step(ids[number])),  # noqa: B023
            ("floor", floor),
        ):
            before, start = encodings, Clock()
            for number in range(STEPS):
                function(number)
            least[what] = min(least[what], (Clock() - start) / STEPS * 1e6)
            if what == "ids":
                encoded += encodings - before
    show(
        f"Hermes tool step, {what_comes} ({name} tokenizer)",
        turn_tokens=len(env.chat.turn([{"role": "tool", "content": tool_.function("Person 1", 1001)}], closed=True)),
        tool_us=least["tool"],
        text_step_us=least["text"],
        above_the_tool_us=least["text"] - least["tool"],
        ids_step_us=least["ids"],
        decode_encode_copy_us=least["floor"],
        ratio=least["ids"] / least["floor"],
        cache_hits=1 - encoded / (EPISODES * STEPS),
    )


def main() -> None:
    tokenizers = {"default": None}
    if data := os.environ.get("AGENT_GYM_TEST_DATA"):
        tokenizers["qwen3"] = str(Path(data) / "tokenizers" / "qwen3")
    for what, tool_ in (("a result of one sentence", look_up), ("a result of three passages", look_up_all)):
        for name, tokenizer in tokenizers.items():
            measure(what, tool_, name, tokenizer)


if __name__ == "__main__":
    main()

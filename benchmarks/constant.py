"""The best constant command sequence: how far one gets on many tasks with the same commands in each, whatever the world answers.

A task set on which this is high does not show that a model reads. The search starts from what experts do in the tasks themselves, so its figure is a
bound from above for anyone who has to choose the sequence beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["best_constant_sequence"]

Commands = tuple[str, ...]


def best_constant_sequence(
    solves: Callable[[int, Commands], bool],
    plans: Sequence[Commands],
    *,
    limit: int,
    pool: int = 100,
    vocabulary: int = 40,
    rounds: int = 2,
) -> tuple[Commands, float]:
    """Search the command sequence that solves the most tasks.

    First whole plans are put behind one another, each time the one that solves the most further tasks. Beside the result stands the majority vote,
    command by command. The better of both is then changed command by command, by exchanging and by inserting, while that helps.

    Args:
        solves: (number of a task, commands) -> whether it is solved on the way.
        plans: an expert's commands for each task.
        limit: the greatest number of commands.
        pool: of different plans, the most frequent ones that are tried.
        vocabulary: of different commands, the most frequent ones that are tried.
        rounds: of changes over the whole sequence, at most.

    Returns:
        The sequence, and the share of the tasks that it solves.
    """
    tasks = range(len(plans))
    known: dict[Commands, int] = {}

    def solved(commands: Commands) -> int:
        commands = commands[:limit]
        if commands not in known:
            known[commands] = sum(solves(task, commands) for task in tasks)
        return known[commands]

    blocks = [plan for plan, _ in Counter(plans).most_common(pool)]
    commands = [command for command, _ in Counter(command for plan in plans for command in plan).most_common(vocabulary)]

    chained: Commands = ()
    while len(chained) < limit:
        longer = max((chained + block for block in blocks), key=solved)
        if solved(longer) <= solved(chained):
            break
        chained = longer[:limit]
    longest = max(map(len, plans), default=0)
    voted = tuple(Counter(plan[at] for plan in plans if len(plan) > at).most_common(1)[0][0] for at in range(min(limit, longest)))

    best = max(chained, voted, key=solved)
    for _ in range(rounds):
        before = solved(best)
        for at in range(min(limit, len(best) + 1)):
            changes = [(*best[:at], command, *best[at + skip :])[:limit] for command in commands for skip in (0, 1)]
            best = max([best, *changes], key=solved)
        if solved(best) == before:
            break
    return best, solved(best) / max(1, len(plans))

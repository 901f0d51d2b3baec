"""An environment whose episodes have everything that the viewer shows, whatever a random model writes: rewards in parts, ends of several kinds, a
rewritten context, a world that breaks, and text that would like to be markup. It can be told to wait, for tests of a training that goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from agent_gym.core import Action, AgentEnv, EnvFault, Observation, Outcome

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "--><svg onload='window.hacked = 1'> &lt;b&gt;",
    "' autofocus onfocus='window.hacked = 1",
)


class Parity(AgentEnv):
    """Pays for replies whose ids have an odd sum, and a little for each token. The context is rewritten before the second reply."""

    reward_part_names: ClassVar[tuple[str, ...]] = ("odd", "length")
    hook: ClassVar[Callable[[], None] | None] = None
    """Called before each answer; it may wait."""

    def _begin(self, options: dict[str, Any]) -> Observation:
        number = options["index"] if "index" in options else int(self.np_random.integers(40))
        self.number, self.odd, self.turn_number = number, 0, 0
        self.task_id = f"task {number} {HOSTILE[number % len(HOSTILE)]}"
        return Observation(text=f"Say something odd.\nThis is number {number}: {HOSTILE[number % len(HOSTILE)]}\nBegin.")

    def _respond(self, action: Action) -> Outcome:
        if Parity.hook is not None:
            Parity.hook()
        if self.number % 12 == 0:
            raise EnvFault(f"the world of number {self.number} broke {HOSTILE[1]}")
        self.turn_number += 1
        paid = int(sum(action.token_ids) % 2)
        self.odd += paid
        parts = {"odd": float(paid), "length": 0.01 * len(action.token_ids)}
        over = self.turn_number == 3 or sum(action.token_ids) % 5 == 0
        said = f"That was {'odd' if paid else 'even'}, after {self.turn_number} of 3 replies."
        if self.turn_number == 1:
            shown = Observation(
                text=f"Say something odd.\nThis is number {self.number}, and here is a summary: {said}\nGo on.", rewrite=True
            )
        else:
            shown = Observation(text=said)
        info = {"reward_parts": parts, "is_success": over and self.odd > 1}
        return Outcome(shown, reward=sum(parts.values()), terminated=over, info=info)

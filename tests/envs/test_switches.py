"""A keyword that is on or off takes no text: "False" would be taken for on."""

import gymnasium
import pytest

import agent_gym  # noqa: F401  # registers the ids

SWITCHES = [
    ("FrozenLake", "is_slippery"),
    ("Taxi", "is_rainy"),
    ("Taxi", "fickle_passenger"),
    ("CliffWalking", "is_slippery"),
    ("Blackjack", "sab"),
    ("Blackjack", "natural"),
    ("GSM8K", "oracle_tool"),
    ("ALFWorld", "show_admissible"),
    ("WebShop", "strict_search"),
]


@pytest.mark.parametrize("given", ["False", "no", 0, None])
@pytest.mark.parametrize(("name", "switch"), SWITCHES)
def test_a_switch_is_true_or_false(name: str, switch: str, given: object) -> None:
    with pytest.raises(ValueError, match=f"{switch} must be True or False"):
        gymnasium.make(f"AgentR1/{name}-v0", **{switch: given})


def test_a_success_rate_is_of_slippery_ice() -> None:
    with pytest.raises(ValueError, match="is_slippery=True"):
        gymnasium.make("AgentR1/FrozenLake-v0", success_rate=0.5)

"""What `gymnasium.make` gives for each id."""

import importlib
import re
from pathlib import Path

import gymnasium
import pytest
import yaml
from helpers import require

import agent_gym
from agent_gym.core import AgentEnv
from agent_gym.registration import Entry

ROOT = Path(__file__).resolve().parents[2]


def time_limits(env_id: str) -> list[object]:
    """Whatever of Gymnasium's would end an episode: the limit of the spec, and its wrapper."""
    if "TextWorld" in env_id:
        require("textworld")
    spec = gymnasium.spec(env_id)
    env = gymnasium.make(env_id)
    found: list[object] = [spec.max_episode_steps] if spec.max_episode_steps is not None else []
    while isinstance(env, gymnasium.Wrapper):
        found += [env] if isinstance(env, gymnasium.wrappers.TimeLimit) else []
        env = env.env
    return found


@pytest.mark.parametrize("env_id", [entry.id for entry in agent_gym.ENVIRONMENTS])
def test_no_id_has_a_limit_of_steps_beside_max_turns(env_id: str) -> None:
    assert time_limits(env_id) == []
    assert "max_episode_steps" not in gymnasium.spec(env_id).kwargs


def missing(entry: Entry) -> list[str]:
    """What the repository lacks of what every id has: an expert, a row of the README's table, a page of the docs, a recipe."""
    made = gymnasium.spec(entry.id).entry_point
    module, _, name = str(made).partition(":")
    expert = getattr(importlib.import_module(module), name).expert
    rows = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{entry.id}` |")]
    pages = [
        page
        for page in (ROOT / "docs").glob("*.md")
        if re.search(rf"^#+ .*{re.escape(entry.id)}\b", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    linked = [ROOT / page for row in rows for page in re.findall(r"\((docs/[\w-]+\.md)\)", row)]
    recipes = [yaml.safe_load(path.read_text(encoding="utf-8")).get("env") for path in (ROOT / "recipes").glob("*.yaml")]
    return [
        *(["an expert"] if expert is AgentEnv.expert else []),
        *(
            ["one row in README.md's table, which says that it has an expert"]
            if [row.split("|")[3].strip() for row in rows] != ["yes"]
            else []
        ),
        *(
            ["a page in docs/ that the README's row links, or a heading there"]
            if not pages and not any(entry.id in page.read_text(encoding="utf-8") for page in linked)
            else []
        ),
        *(["a recipe"] if entry.id not in recipes else []),
    ]


@pytest.mark.parametrize("entry", agent_gym.ENVIRONMENTS, ids=lambda entry: entry.id.partition("/")[2])
def test_every_id_has_an_expert_a_row_in_the_readme_a_page_and_a_recipe(entry: Entry) -> None:
    if "TextWorld" in entry.id:
        require("textworld")
    assert missing(entry) == []


def test_an_id_without_them_is_seen() -> None:
    entry = Entry("Bare-v0", "agent_gym.core:AgentEnv", "nothing but a class")
    gymnasium.register(entry.id, entry_point=entry.entry_point)
    try:
        assert len(missing(entry)) == 4
    finally:
        del gymnasium.registry[entry.id]


def test_the_table_of_the_readme_has_no_other_ids() -> None:
    shown = re.findall(r"^\| `(AgentR1/\S+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert shown == [entry.id for entry in agent_gym.ENVIRONMENTS]


def test_a_limit_of_steps_would_be_seen() -> None:
    entry = agent_gym.ENVIRONMENTS[0]
    gymnasium.register("Limited-v0", entry_point=entry.entry_point, max_episode_steps=3)
    try:
        assert len(time_limits("Limited-v0")) == 2
    finally:
        del gymnasium.registry["Limited-v0"]


def test_a_class_of_a_module_is_registered_when_it_is_named(tmp_path, monkeypatch):
    from agent_gym.registration import registered_id

    (tmp_path / "my_rooms.py").write_text(
        "from agent_gym.core import AgentEnv, Observation, Outcome\n"
        "class Room(AgentEnv):\n"
        "    def _begin(self, options):\n        return Observation(text='Say hello.')\n"
        "    def _respond(self, action):\n        return Outcome(Observation(text='Good.'), 1.0, True, {'is_success': True})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registered_id("my_rooms:Room") == "Local/Room-v0" == registered_id("my_rooms:Room")
    env = gymnasium.make("Local/Room-v0")
    env.reset(seed=0)
    assert env.step(env.unwrapped.encode_action("hello"))[1:3] == (1.0, True)
    assert registered_id("agent_gym:AgentR1/Tool-v0") == "AgentR1/Tool-v0" == registered_id("AgentR1/Tool-v0")
    with pytest.raises(ValueError, match="no class"):
        registered_id("my_rooms:Hall")
    with pytest.raises(ImportError):
        registered_id("no_such_module_anywhere:Room")

"""Fixtures that every room shares: the folder of real test input and its tokenizer."""

import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # no test depends on how busy the machine is
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real test input; the test is skipped, with the reason, where it is not."""
    folder = os.environ.get("AGENT_GYM_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        if os.environ.get("AGENT_GYM_REQUIRE_ALL"):
            pytest.fail("AGENT_GYM_REQUIRE_ALL is set, but AGENT_GYM_TEST_DATA names no folder")
        pytest.skip("set AGENT_GYM_TEST_DATA to the folder of real test input")
    return Path(folder)


@pytest.fixture(scope="session")
def qwen3_path(data_dir: Path) -> str:
    """The folder of the real Qwen3 tokenizer."""
    return str(data_dir / "tokenizers" / "qwen3")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a random model that speaks the default tokenizer."""
    from agent_gym.chat import load_tokenizer
    from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model

    folder = str(tmp_path_factory.mktemp("model") / "tiny")
    tokenizer = load_tokenizer(None)
    build_tiny_model(tokenizer, 0, TinyShape(hidden_size=32, layers=1, head_size=16, feed_forward_size=64)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C mean what it means: a shell that runs the tests in the background has it ignored, here and in all that they start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker that a thread or a process of its own keeps alive show its stacks and end, instead of holding the whole run.

    A worker without further tests waits for the others, so that twenty minutes are needed to tell one from the other.
    """
    if hasattr(session.config, "workerinput"):
        faulthandler.dump_traceback_later(1200, exit=True, file=sys.__stderr__)


OPT_IN = {"real_model": "--real-model", "vllm_engine": "--vllm-engine"}
"""Markers of tests that run only when asked for, and how they are."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switches of the tests that need what a machine rarely has."""
    parser.addoption("--real-model", action="store_true", help="also run the tests that download and run a pretrained model (minutes)")
    parser.addoption(
        "--vllm-engine", action="store_true", help="also run the tests that start the real vLLM engine (minutes; make test-vllm)"
    )
    parser.addoption("--record-vllm", action="store_true", help="with --vllm-engine: write anew what the real engine answers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that were not asked for, also where nothing may be skipped, and begin with the files that hold slow ones.

    A file goes to one worker (`--dist loadfile`): with the long ones last, one worker would sit there while the other ends alone.
    """
    unasked = [marker for marker, option in OPT_IN.items() if not config.getoption(option)]
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in unasked)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say whether those tests run."""
    return [
        f"{marker}: {'its tests run' if config.getoption(option) else f'its tests are deselected; {option} runs them'}"
        for marker, option in OPT_IN.items()
    ]

"""What a policy on an engine does when the engine is gone, hangs, or answers what it must not: against stand-ins on this machine (`engine_servers`)."""

from __future__ import annotations

import asyncio
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import require
from hypothesis import given
from hypothesis import strategies as st

torch = require("torch")
require("transformers")

from engine_servers import FakeSGLang, FakeVLLM, plain_logprobs, serving  # noqa: E402
from test_policy_contract import VOCABULARY, make_model  # noqa: E402

from agent_gym.policies import EngineError, Sampling, SGLangPolicy, VLLMPolicy  # noqa: E402
from agent_gym.policies.engine import EngineInfo, EnginePolicy, Reply  # noqa: E402
from agent_gym.trajectory import Generation  # noqa: E402

MODEL = make_model(1)
PROMPT = list(range(3, 20))
SAMPLING = Sampling(max_tokens=6, seed=1)
KINDS = {"vllm": (FakeVLLM, VLLMPolicy), "sglang": (FakeSGLang, SGLangPolicy)}


def ask(server: Any, *, sampling: Sampling = SAMPLING, prompt: list[int] = PROMPT, **settings: Any) -> Generation:
    policy = KINDS["vllm" if isinstance(server, FakeVLLM) else "sglang"][1](server.url, **{"retry_delay": 0.01, **settings})
    try:
        found: Generation = asyncio.run(policy.generate(prompt, sampling))
    finally:
        policy.close()
    return found


@pytest.fixture(scope="module")
def vllm() -> Any:
    with serving(FakeVLLM(MODEL)) as made:
        yield made


@pytest.fixture(scope="module")
def sglang() -> Any:
    with serving(FakeSGLang(MODEL)) as made:
        yield made


@pytest.fixture(params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def no_fault_is_left(request: pytest.FixtureRequest) -> Any:
    servers = [request.getfixturevalue(name) for name in sorted({"vllm", "sglang", "server"} & set(request.fixturenames))]
    yield
    for made in servers:
        made.faults.clear()
        made.missing, made.slow = set(), 0.0


# ------------------------------------------------------------------------------------------------ gone, or hanging


@pytest.mark.parametrize("fault", ["dead", "503", "429", "500", "half", "abort", "hang"])
def test_a_request_is_sent_again_to_an_engine_that_did_not_answer(server: Any, fault: str) -> None:
    server.faults.extend([fault, fault])
    before = len(server.requests)
    generation = ask(server, timeout=5.0 if fault == "hang" else 60.0)
    assert len(generation.token_ids) == 6 and generation.finish_reason == "length"
    asked = server.requests[before:]
    assert len(asked) == 3
    names = [one.get("request_id") or one.get("rid") for one in asked]
    assert len(set(names)) == (2 if fault == "dead" else 3), (
        "an engine refuses a name that it still works on"
    )  # a stale connection is no try
    seeds = {one.get("seed", (one.get("sampling_params") or {}).get("sampling_seed")) for one in asked}
    assert len(seeds) == 1, "and the same seed, so that a repetition changes nothing"


@pytest.mark.parametrize(
    ("fault", "words"), [("dead", "tried 3 times"), ("503", "busy"), ("half", "broke off"), ("hang", "no complete answer")]
)
def test_an_engine_that_stays_away_is_an_error_that_says_so(server: Any, fault: str, words: str) -> None:
    server.faults.extend([fault] * 9)
    with pytest.raises(EngineError, match=words) as caught:
        ask(server, retries=2, timeout=1.0 if fault == "hang" else 60.0)
    assert server.url in str(caught.value) and "tried 3 times" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_at_the_address_is_an_error_that_names_it(kind: str) -> None:
    with serving(KINDS[kind][0](MODEL)) as made:
        url = made.url
    policy = KINDS[kind][1](url, retries=1, retry_delay=0.0)
    with pytest.raises(EngineError, match="see that it runs and is reachable") as caught:
        asyncio.run(policy.generate(PROMPT, SAMPLING))
    assert url in str(caught.value)


def test_a_hung_request_ends_in_the_server_when_its_caller_gives_up(server: Any) -> None:
    server.faults.append("hang")
    policy = KINDS["vllm" if isinstance(server, FakeVLLM) else "sglang"][1](server.url)
    before = server.disconnected

    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await policy.generate(PROMPT, SAMPLING)
        for _ in range(500):
            if server.disconnected > before:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the server still works for nobody")

    asyncio.run(run())
    policy.close()


@pytest.mark.parametrize("can_abort", [True, False])
def test_abort_ends_what_is_in_flight_and_nothing_else(server: Any, can_abort: bool) -> None:
    sglang = isinstance(server, FakeSGLang)
    server.missing = set() if can_abort or sglang else {"/abort_requests"}
    policy = KINDS["sglang" if sglang else "vllm"][1](server.url)

    async def run() -> tuple[list[Generation], Generation]:
        await policy.connect()
        server.slow = 30.0
        flying = [asyncio.create_task(policy.generate(PROMPT, Sampling(max_tokens=4, seed=number))) for number in range(3)]
        while server.running < 3:
            await asyncio.sleep(0.01)
        server.slow = 0.0
        other = KINDS["sglang" if sglang else "vllm"][1](server.url)
        kept = asyncio.create_task(other.generate(PROMPT, Sampling(max_tokens=20, seed=9)))
        await policy.abort()
        ended = await asyncio.gather(*flying)
        await policy.abort()  # with nothing in flight: nobody else's requests
        return list(ended), await kept

    try:
        ended, kept = asyncio.run(run())
    finally:
        server.missing, server.slow = set(), 0.0
        policy.close()
    assert {one.finish_reason for one in ended} == {"abort"}
    assert kept.finish_reason == "length" and len(kept.token_ids) == 20
    if can_abort:
        for number, one in enumerate(ended):
            assert len(one.token_ids) == len(one.logprobs) <= 4, number


# ------------------------------------------------------------------------------------------------ answers that must not be believed

LIES = {
    "other prompt": "different from position 16",
    "retokenised": "different from position 0",
    "no ids": "no token ids",
    "text ids": "none of the model's",
    "fewer ids": "6 log-probabilities for 5 ids",
    "more ids": "7 ids where at most 6",
    "nan": "knew none of the log-probabilities",
    "positive": "above 0",
    "no logprobs": "no log-probabilities",
    "other stop": "stopped elsewhere",
    "repetition": "'repetition'",
    "two choices": "2 choices for one request",
    "no choices": "'choices' is missing",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_breaks_the_contract_is_refused_with_the_reason(vllm: Any, lie: str) -> None:
    before = len(vllm.requests)
    vllm.faults.append(lie)
    with pytest.raises(EngineError, match=LIES[lie]):
        ask(vllm)
    assert len(vllm.requests) == before + 1, "a wrong answer does not become right by asking again"


@pytest.mark.parametrize("lie", ["retokenised", "no ids", "nan"])
@pytest.mark.parametrize("gives_prompt", [True, False])
def test_sglang_is_believed_no_more(sglang: Any, lie: str, gives_prompt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "gives_prompt", gives_prompt)
    sglang.faults.append(lie)
    with pytest.raises(EngineError, match=r"different from position 0|18 prompt tokens for 17|no token ids|knew none"):
        ask(sglang)
    assert len(ask(sglang).token_ids) == 6


def test_an_unknown_log_probability_is_unknown_and_counted(server: Any) -> None:
    server.faults.append("one null")
    with pytest.warns(UserWarning, match="did not know the log-probability"):
        generation = ask(server)
    assert math.isnan(generation.logprobs[0]) and np.isfinite(generation.logprobs[1:]).all()


def test_a_reply_that_the_models_own_end_stopped_says_which_id_to_name() -> None:
    with serving(FakeSGLang(MODEL, eos=tuple(range(3, VOCABULARY)))) as made:
        with pytest.raises(EngineError, match="name them in stop_token_ids"):
            ask(made, sampling=Sampling(max_tokens=6, seed=1, stop_token_ids=(2,)))
        assert len(ask(made).token_ids) == 6  # without stop ids its own are switched off


class Scripted:
    """An engine that answers one thing."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def connect(self) -> EngineInfo:
        return EngineInfo("scripted", "x", 64)

    async def complete(self, *_: Any) -> Reply:
        return self.reply

    async def abort(self, request_ids: Any) -> None: ...

    async def load(self, folder: str, version: int) -> None: ...

    async def reset_prefix_cache(self) -> None: ...

    def close(self) -> None: ...


_ids = st.lists(st.one_of(st.integers(-1, 12), st.none(), st.booleans()), max_size=8)
_numbers = st.lists(st.one_of(st.floats(-20, 1), st.none(), st.just(math.nan), st.just("x")), max_size=8)


@given(
    ids=st.one_of(st.none(), _ids, st.lists(st.integers(0, 9), max_size=6)),
    logprobs=st.one_of(st.none(), _numbers),
    same=st.booleans(),
    reason=st.sampled_from(["stop", "length", "abort", "repetition", None]),
    prompt=st.one_of(st.none(), st.just([1, 2, 3]), st.lists(st.integers(0, 4), max_size=4)),
)
def test_whatever_an_engine_answers_is_refused_or_is_a_whole_generation(
    ids: Any, logprobs: Any, same: bool, reason: Any, prompt: Any
) -> None:
    if same and ids is not None:
        logprobs = [-0.5] * len(ids)
    policy = EnginePolicy(Scripted(Reply(ids, logprobs, reason, prompt)), vocab_size=10, retries=0)
    sampling = Sampling(max_tokens=6, seed=0, stop_token_ids=(7, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            generation = asyncio.run(policy.generate([1, 2, 3], sampling))
        except EngineError:
            return
    found = generation.token_ids.tolist()
    assert found == ids and prompt in (None, [1, 2, 3])
    assert all(0 <= one < 10 and type(one) is int for one in ids) and len(found) <= 6
    assert len(generation.logprobs) == len(found) and not np.any(generation.logprobs > 1e-3)
    stops = [place for place, one in enumerate(found) if one in (7, 8)]
    assert (generation.finish_reason == "stop") == (stops == [len(found) - 1] and bool(found))
    assert generation.finish_reason in ("stop", "length", "context")
    assert (generation.finish_reason == "length") <= (len(found) == 6)


# ------------------------------------------------------------------------------------------------ what an engine says of itself


def test_a_context_that_is_shorter_than_told_is_learned_from_the_400() -> None:
    with serving(FakeVLLM(MODEL, max_model_len=100, told_len=200)) as made:
        policy = VLLMPolicy(made.url, retry_delay=0.0)

        async def run() -> list[Generation]:
            prompt = list(range(3, 93))
            return [await policy.generate(prompt, Sampling(max_tokens=30, seed=number)) for number in range(2)]

        one, other = asyncio.run(run())
        assert (len(one.token_ids), one.finish_reason) == (10, "context") == (len(other.token_ids), other.finish_reason)
        assert [request["max_tokens"] for request in made.requests] == [30, 10, 10], "the second prompt is clamped before the engine"
        with pytest.warns(UserWarning, match="leaves no room in the engine's context of 100"):
            full = asyncio.run(policy.generate([3] * 150, SAMPLING))
        assert (len(full.token_ids), full.finish_reason) == (0, "context") and len(made.requests) == 3
        assert policy.counts["no_room"] == 1


def test_raw_log_probabilities_are_found_out_and_refused_where_they_are_wrong() -> None:
    with serving(FakeVLLM(MODEL, raw=True)) as made:
        for wrong in ({"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 5}):
            with pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
                ask(made, sampling=Sampling(max_tokens=4, seed=0, **wrong))
        generation = ask(made)  # at temperature 1 the two are the same
        np.testing.assert_allclose(generation.logprobs, plain_logprobs(MODEL, PROMPT, generation.token_ids.tolist()), atol=1e-4)


def test_filters_leave_sglangs_log_probabilities_unknown_and_vllms_right(vllm: Any, sglang: Any) -> None:
    cut = Sampling(max_tokens=6, seed=1, top_k=3)
    with pytest.warns(UserWarning, match="without top_p"):
        assert ask(sglang, sampling=cut).logprobs is None
    generation = ask(vllm, sampling=cut)
    plain = plain_logprobs(MODEL, PROMPT, generation.token_ids.tolist())
    assert (generation.logprobs > np.array(plain) - 1e-5).all() and (generation.logprobs - np.array(plain)).max() > 0.1, "renormalised"


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"model": "other"}, EngineError, "serves tiny, not other"),
        ({"url": "127.0.0.1:8000"}, ValueError, "url must look like"),
        ({"url": "http://127.0.0.1:8000/v2"}, ValueError, "url must look like"),
        ({"max_context": 1}, ValueError, "max_context must be at least 2"),
        ({"engine_kwargs": {"dtype": "float32"}}, ValueError, "no engine_kwargs"),
        ({"mode": "offline"}, ValueError, "'server' or 'colocate'"),
    ],
)
def test_settings_that_cannot_be_are_refused(vllm: Any, settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        policy = VLLMPolicy(**{"url": vllm.url + "/v1", **settings})
        asyncio.run(policy.generate(PROMPT, SAMPLING))


def test_a_temperature_that_vllm_would_raise_is_refused(vllm: Any) -> None:
    with pytest.raises(ValueError, match="take 0"):
        ask(vllm, sampling=Sampling(temperature=0.001, max_tokens=2))


def test_a_server_with_a_key_gets_it_and_every_setting_is_told(vllm: Any) -> None:
    ask(vllm, sampling=Sampling(temperature=0.7, top_p=0.9, min_p=0.1, max_tokens=2, stop_token_ids=(5,)), api_key="k")
    request = vllm.requests[-1]
    assert vllm.authorisation == "Bearer k"
    told = {"temperature": 0.7, "top_p": 0.9, "top_k": 0, "min_p": 0.1, "repetition_penalty": 1.0, "presence_penalty": 0.0,
            "frequency_penalty": 0.0, "stop_token_ids": [5], "ignore_eos": True, "n": 1}  # fmt: skip
    assert {name: request[name] for name in told} == told and "stop" not in request
    assert request["prompt"] == PROMPT


# ------------------------------------------------------------------------------------------------ weights


def saved(folder: Path, seed: int) -> tuple[Any, Path]:
    model = make_model(seed)
    model.save_pretrained(folder / str(seed))
    return model, folder / str(seed)


def error_of(model: Any, generation: Generation, prompt: list[int] = PROMPT) -> float:
    return float(np.abs(generation.logprobs - np.array(plain_logprobs(model, prompt, generation.token_ids.tolist()))).max())


def test_an_engine_that_comes_back_gets_its_weights_again_before_it_answers(tmp_path: Path) -> None:
    new, folder = saved(tmp_path, 8)
    made = FakeVLLM(MODEL)
    policy = VLLMPolicy(made.url, retries=60, retry_delay=0.05)

    async def run() -> Generation:
        await policy.update_weights(folder, version=3)
        made.close()
        asked = asyncio.create_task(policy.generate(PROMPT, SAMPLING))
        await asyncio.sleep(0.3)
        port = int(made.url.rsplit(":", 1)[1])
        again.append(FakeVLLM(MODEL, port=port))  # with the weights that it is started with
        return await asked

    again: list[FakeVLLM] = []
    try:
        generation = asyncio.run(run())
        assert generation.policy_version == 3 and error_of(new, generation) < 2e-4
        assert [path for path, _ in again[0].controls][:3] == ["/pause", "/collective_rpc", "/reset_prefix_cache"]
    finally:
        policy.close()
        for one in again:
            one.close()


def test_an_update_that_fails_leaves_a_policy_that_answers_nothing_until_one_succeeds(tmp_path: Path) -> None:
    new, folder = saved(tmp_path, 8)
    for kind, (make, policy_of) in KINDS.items():
        with serving(make(MODEL)) as made:
            policy = policy_of(made.url, retries=1, retry_delay=0.0)
            with pytest.raises(EngineError, match=r"did not load|HTTP status 500"):
                asyncio.run(policy.update_weights(tmp_path / "nowhere"))
            assert policy.version == 0 and not made.paused.is_set(), f"{kind} is left paused"
            with pytest.raises(EngineError, match="weights are unknown"):
                asyncio.run(policy.generate(PROMPT, SAMPLING))
            asyncio.run(policy.update_weights(folder))
            generation = asyncio.run(policy.generate(PROMPT, SAMPLING))
            assert generation.policy_version == 1 and error_of(new, generation) < 2e-4
            policy.close()


def test_a_server_without_its_development_mode_says_what_to_start(vllm: Any) -> None:
    vllm.missing = {"/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"}
    policy = VLLMPolicy(vllm.url, retry_delay=0.0)
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1"):
        asyncio.run(policy.update_weights("/somewhere"))
    assert len(ask(vllm).token_ids) == 6, "sampling needs no development mode"


def test_a_model_can_be_handed_over_and_what_was_written_for_it_goes_away(tmp_path: Path) -> None:
    with serving(FakeVLLM(MODEL)) as made:
        policy = VLLMPolicy(made.url, weights_dir=tmp_path)
        for seed, version in ((8, 1), (9, 2)):
            assert asyncio.run(policy.update_weights(make_model(seed))) == version
            assert len(list(tmp_path.iterdir())) == 1
        generation = asyncio.run(policy.generate(PROMPT, SAMPLING))
        assert error_of(make_model(9), generation) < 2e-4 and generation.policy_version == 2
        policy.close()
        assert not list(tmp_path.iterdir())
        with pytest.raises(TypeError, match="save_pretrained"):
            asyncio.run(policy.update_weights(5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_that_somebody_else_set_drops_the_prefix_cache_first(kind: str) -> None:
    make, policy_of = KINDS[kind]
    long, new = list(range(3, 60)), make_model(8)
    with serving(make(MODEL)) as made:
        policy = policy_of(made.url)
        asyncio.run(policy.generate(long, SAMPLING))
        made.old, made.model = made.policy, new  # by NCCL, say: nothing of it comes over HTTP
        made.policy = type(made.policy)(new, pad_id=0)
        policy.version = 4
        generation = asyncio.run(policy.generate(long, SAMPLING))
        assert generation.policy_version == 4 and error_of(new, generation, long) < 2e-4
        policy.close()


def test_an_update_waits_for_the_requests_in_flight_and_holds_new_ones_back(tmp_path: Path) -> None:
    new, folder = saved(tmp_path, 8)
    with serving(FakeVLLM(MODEL)) as made:
        policy = VLLMPolicy(made.url)

        async def run() -> tuple[list[Generation], list[Generation]]:
            await policy.connect()
            made.slow = 0.3
            before = [asyncio.create_task(policy.generate(PROMPT, Sampling(max_tokens=6, seed=number))) for number in range(4)]
            while made.running < 4:
                await asyncio.sleep(0.01)
            update = asyncio.create_task(policy.update_weights(folder, version=6))
            await asyncio.sleep(0.02)
            after = [asyncio.create_task(policy.generate(PROMPT, Sampling(max_tokens=6, seed=number))) for number in range(4)]
            await update
            return await asyncio.gather(*before), await asyncio.gather(*after)

        before, after = asyncio.run(run())
        policy.close()
    assert {one.policy_version for one in before} == {0} and max(error_of(MODEL, one) for one in before) < 2e-4
    assert {one.policy_version for one in after} == {6} and max(error_of(new, one) for one in after) < 2e-4


def test_the_policy_needs_neither_torch_nor_vllm() -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = sys.modules['vllm'] = None\n"
        "from agent_gym.policies import VLLMPolicy, SGLangPolicy\n"
        "VLLMPolicy('http://127.0.0.1:1'); SGLangPolicy('http://127.0.0.1:1')\n"
        "try:\n    VLLMPolicy(mode='colocate', model='x')\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "agentr1-gym[vllm]"' in done.stdout and 'mode="server"' in done.stdout

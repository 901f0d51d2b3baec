"""The client against what a real vLLM server answered (version in the file), and the stand-in against the same: its answers have the real one's form."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import require

torch = require("torch")
transformers = require("transformers")

from engine_servers import FakeVLLM, serving  # noqa: E402
from vllm_recording import FILE, MEMBERS, nameless, playing, post, shape_of, talk  # noqa: E402

from agent_gym.chat import load_tokenizer  # noqa: E402

RECORDED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_file_says_which_engine_answered() -> None:
    assert RECORDED["engine"].startswith("vllm ") and RECORDED["engine"].split()[1][0].isdecimal()
    assert all(set(exchange) == MEMBERS for exchange in RECORDED["exchanges"])
    assert RECORDED["engine"] == f"vllm {next(e['answer']['version'] for e in RECORDED['exchanges'] if e['target'] == '/version')}"
    assert {exchange["status"] for exchange in RECORDED["exchanges"]} == {200, 400, 404}


def test_the_client_asks_what_it_asked_the_real_engine_and_reads_its_answers(tmp_path: Path) -> None:
    with playing(RECORDED["exchanges"]) as (url, wrong):
        found = talk(url, RECORDED["context"], tmp_path)
    assert not wrong
    assert found == RECORDED["found"]


@pytest.mark.parametrize("spoilt", ["token_ids", "prompt_token_ids", "token_logprobs"])
def test_control_an_answer_that_is_not_the_recorded_one_is_seen(spoilt: str, tmp_path: Path) -> None:
    exchanges = copy.deepcopy(RECORDED["exchanges"])
    place = next(i for i, one in enumerate(exchanges) if (one["request"] or {}).get("max_tokens") == 6)
    choice = exchanges[place]["answer"]["choices"][0]
    where = choice["logprobs"] if spoilt == "token_logprobs" else choice
    where[spoilt] = [where[spoilt][0] - 1, *where[spoilt][1:]]
    with playing(exchanges) as (url, _):
        found = talk(url, RECORDED["context"], tmp_path)
    assert found != RECORDED["found"]


def test_the_stand_in_answers_the_recorded_requests_in_the_form_of_the_real_engine(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(None)
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        intermediate_size=16, max_position_embeddings=RECORDED["context"], tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    model.save_pretrained(tmp_path)
    names = itertools.count()
    with serving(FakeVLLM(model, max_model_len=RECORDED["context"], tokenizer=tokenizer)) as server:
        for exchange in RECORDED["exchanges"]:
            request = exchange["request"]
            body = named(request, f"request-{next(names)}", str(tmp_path))
            if request is not None:
                assert nameless(body) == request
            status, content = post(server.url + exchange["target"], body)
            assert status == exchange["status"], (exchange["target"], content)
            known, made = shape_of(exchange["answer"]), shape_of(json.loads(content or b"null"))
            assert fits(made, known), f"{exchange['target']}: the stand-in answers {made}, the engine {known}"


def named(value: Any, name: str, folder: str) -> Any:
    if not isinstance(value, dict):
        return value
    own = {"request_id": name, "weights_path": folder}
    return {key: own.get(key, named(one, name, folder)) for key, one in value.items()}


def fits(made: Any, known: Any) -> bool:
    """Each member that the stand-in has, the engine has too, with a value of the same kind; the engine may have more, which nobody reads."""
    if isinstance(made, dict) and isinstance(known, dict):
        return all(key in known and fits(value, known[key]) for key, value in made.items())
    if isinstance(made, list) and isinstance(known, list):
        return all(any(fits(json.loads(one), json.loads(other)) for other in known) for one in made)
    return bool(made == known)


@pytest.mark.parametrize(
    ("made", "known", "good"),
    [
        ({"a": 1}, {"a": 2, "b": 3}, True), ({"a": 1, "b": 2}, {"a": 2}, False), ({"a": "x"}, {"a": 2}, False), ([{"a": 1}], [{"a": 2}], True),
        ([{"b": 1}], [{"a": 2}], False), ({"17": 1.5}, {"4": 2}, True), ([None, {"3": {"rank": 1}}], [None, {"9": {"rank": 1}}], True),
    ],
)  # fmt: skip
def test_two_answers_of_one_form(made: Any, known: Any, good: bool) -> None:
    assert fits(shape_of(made), shape_of(known)) is good

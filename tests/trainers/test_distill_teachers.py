"""Teachers: which are taken and which refused, and one behind a server (a stand-in that speaks vLLM's protocol)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distill_training import TEACHER_SEED, make_distill
from engine_servers import FakeVLLM, serving
from peft import LoraConfig, get_peft_model
from toy_training import VOCAB, make_args, make_model, make_tokenizer, random_batch, relative_error, window_gradients

from agent_gym.policies import EngineError
from agent_gym.policies.vllm_policy import PromptScores
from agent_gym.trainers.distill import AgentDistillConfig, AgentDistillTrainer, ModelTeacher, ServerTeacher
from agent_gym.trainers.teacher import check_teacher

ROWS = [[5, 6, 7, 8], [9, 10], [3, 4, 5, 6, 7, 8, 9, 10]]


def single(seed: int = TEACHER_SEED) -> Any:
    return make_model(seed=seed, dtype=torch.float32)


@pytest.fixture(scope="module")
def served() -> Any:
    with serving(FakeVLLM(single(), tokenizer=make_tokenizer())) as made:
        yield made


@pytest.fixture(autouse=True)
def no_fault_is_left(request: pytest.FixtureRequest) -> Any:
    yield
    if "served" in request.fixturenames:
        made = request.getfixturevalue("served")
        made.faults.clear()
        made.missing = set()


def asked(server: Any, rows: Any = ROWS, **settings: Any) -> list[PromptScores]:
    teacher = ServerTeacher(server.url, **{"retry_delay": 0.01, "retries": 2, **settings})
    try:
        teacher.connect(make_tokenizer())
        return teacher.score(rows)
    finally:
        teacher.close()


# ------------------------------------------------------------------------------------------------ behind a server


def test_a_server_tells_the_log_probabilities_of_the_ids_that_it_was_sent(served: Any) -> None:
    before = len(served.requests)
    for row, scores in zip(ROWS, asked(served), strict=True):
        with torch.no_grad():
            wanted = single()(input_ids=torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        index = torch.tensor(row[1:])
        assert np.allclose(scores.logprobs, wanted.gather(1, index[:, None])[:, 0].numpy(), atol=1e-5)
        assert scores.likeliest.tolist() == (wanted.argmax(-1) == index).tolist()
    sent = served.requests[before:]
    assert sorted(one["prompt"] for one in sent) == sorted(ROWS)
    assert all(one["max_tokens"] == 1 and one["prompt_logprobs"] == 0 and one["return_token_ids"] for one in sent)
    assert len({one["request_id"] for one in sent}) == 3 and "vllm" not in sys.modules


@pytest.mark.parametrize("context", ["append", "mixed"])
def test_a_teacher_behind_a_server_gives_the_gradient_of_the_same_one_here(served: Any, context: str, tmp_path: Path) -> None:
    batch, model = random_batch(3, context=context, empty=0.2), make_model()
    for way in ({}, {"max_tokens_per_microbatch": 24}, {"merge_prefix": False}):
        trainer = make_distill(tmp_path, batch, model, teacher=served.url, **way)
        assert trainer.distill_loss == "sampled" and isinstance(trainer.teacher, ServerTeacher)
        (got,) = window_gradients(trainer)
        trainer.teacher.close()
        (wanted,) = window_gradients(make_distill(tmp_path, batch, model, teacher=single(), distill_loss="sampled", **way))
        assert relative_error(got, wanted) < 1e-4 and wanted.norm() > 1e-3


@pytest.mark.parametrize("fault", ["dead", "503", "429", "half"])
def test_a_request_is_sent_again(served: Any, fault: str) -> None:
    clean = asked(served)
    served.faults.extend([fault, fault])
    for one, other in zip(asked(served), clean, strict=True):
        assert np.array_equal(one.logprobs, other.logprobs)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("other prompt", "worked on 2 ids that are not the 2"),
        ("retokenised", "worked on 1 ids that are not the 2"),
        ("no scores", "0 entries for 2 ids"),
        ("fewer scores", "1 entries for 2 ids"),
        ("two choices", "not of its documented form"),
        ("500", "does not answer"),
    ],
)
def test_an_answer_that_is_not_of_the_contract_is_refused(served: Any, fault: str, message: str) -> None:
    served.faults.extend([fault] * 3)
    with pytest.raises(EngineError, match=message):
        asked(served, [[5, 6]])


def test_scores_of_other_ids_and_scores_above_nought_are_refused(served: Any) -> None:
    for fault, message in (("scores of others", "'6' is missing|'7' is missing"), ("positive score", "--logprobs-mode of logprobs")):
        served.faults.append(fault)
        with pytest.raises(EngineError, match=message):
            asked(served, [[5, 6, 7, 8]])


@pytest.mark.parametrize("fault", ["impossible", "null score"])
def test_what_the_server_does_not_know_is_unknown_and_teaches_nothing(served: Any, fault: str, tmp_path: Path) -> None:
    served.faults.append(fault)
    (scores,) = asked(served, [[5, 6, 7, 8]])
    assert np.isnan(scores.logprobs).tolist() == [False, True, False]
    batch = random_batch(6, groups=1, context="append")
    trainer = make_distill(tmp_path, batch, teacher=served.url, per_device_train_batch_size=2)
    assert isinstance(trainer.teacher, ServerTeacher)

    def forgetful(rows: Any) -> list[PromptScores]:
        return [PromptScores(np.full(len(row) - 1, np.nan, np.float32), np.zeros(len(row) - 1, bool)) for row in rows]

    trainer.accelerator.gradient_state._set_sync_gradients(True)
    trainer.teacher.score = forgetful  # type: ignore[method-assign]
    assert not window_gradients(trainer)[0].any()
    figures = trainer._metrics["train"]
    assert figures["distill/unknown"] == [sum(len(step.action_ids) for item in batch for step in item.steps)]
    assert "distill/reverse_kl" not in figures
    trainer.teacher.close()


def test_rows_that_do_not_fit_and_ids_that_are_unknown_are_named(served: Any) -> None:
    with pytest.raises(EngineError, match=r"a row of 300 tokens does not fit .*--max-model-len"):
        asked(served, [[5] * 300])
    with pytest.raises(ValueError, match="out of vocabulary"):
        asked(served, [[5, 3999]])
    with (
        serving(FakeVLLM(single(), tokenizer=make_tokenizer(), told_len=1000)) as boasting,
        pytest.raises(EngineError, match="a row of 300"),
    ):
        asked(boasting, [[5] * 300])


def test_the_vocabulary_of_a_server_is_compared(served: Any, tmp_path: Path) -> None:
    other = make_tokenizer()
    other.add_special_tokens({"additional_special_tokens": ["<call>"]})
    teacher = ServerTeacher(served.url)
    with pytest.raises(ValueError, match="reads other ids than the student"):
        teacher.connect(other)
    teacher.close()
    other.save_pretrained(tmp_path)
    fine = ServerTeacher(served.url, tokenizer=str(tmp_path))  # it knows more tokens, and all of the student's
    fine.connect(make_tokenizer())
    fine.close()
    make_tokenizer().save_pretrained(tmp_path / "less")
    short = ServerTeacher(served.url, tokenizer=str(tmp_path / "less"))
    with pytest.raises(
        ValueError, match=f"1 of {VOCAB + 1} ids of the policy mean something else to it, the first is {VOCAB}, '<call>' here and nothing"
    ):
        short.connect(other)
    short.close()
    served.missing = {"/tokenize"}
    with pytest.warns(UserWarning, match="it is not known whether its ids are those of the student"):
        asked(served)


def test_a_server_has_settings_that_it_cannot_serve(served: Any, tmp_path: Path) -> None:
    batch = random_batch(1)
    for settings, message in (
        ({"distill_loss": "full"}, "a server tells the log-probabilities of given ids alone"),
        ({"temperature": 0.7}, "at temperature 1, whatever it is"),
        ({"teacher_temperature": 2.0}, "at temperature 1, whatever it is"),
    ):
        for given in (served.url, None):
            teacher = {"teacher": ServerTeacher(served.url)} if given is None else {"teacher": given}
            with pytest.raises(ValueError, match=message):
                make_distill(tmp_path, batch, **teacher, **settings)
    make_distill(tmp_path, batch, teacher=served.url, temperature=0.7, teacher_temperature=1.0)
    with pytest.raises(EngineError, match=r"does not answer: .* \(tried 1 times\)"):
        ServerTeacher("http://127.0.0.1:9", retries=0).connect(make_tokenizer())


# ------------------------------------------------------------------------------------------------ in this process


def test_a_folder_is_opened_in_its_own_type_and_frozen(tmp_path: Path) -> None:
    make_model(seed=TEACHER_SEED, dtype=torch.bfloat16).save_pretrained(tmp_path / "bare")
    for dtype, found in (("auto", torch.bfloat16), ("float32", torch.float32)):
        trainer = make_distill(tmp_path / "run", random_batch(1), teacher=str(tmp_path / "bare"), teacher_dtype=dtype)
        assert isinstance(trainer.teacher, ModelTeacher)
        own = list(trainer.teacher.model.parameters())
        assert {one.dtype for one in own} == {found} and not any(one.requires_grad for one in own) and not trainer.teacher.model.training
        assert {id(one) for one in own}.isdisjoint({id(one) for one in trainer.model.parameters()})
    assert window_gradients(trainer)[0].norm() > 1e-3


def test_a_teacher_with_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "teacher"
    single().save_pretrained(folder)
    other = make_tokenizer()
    content = other.backend_tokenizer.to_str().replace('"w3"', '"x"').replace('"w4"', '"w3"').replace('"x"', '"w4"')
    other.save_pretrained(folder)
    check_teacher(str(folder), make_tokenizer())
    folder = Path(shutil.copytree(folder, tmp_path / "other"))  # a tokenizer is opened once per name
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"2 of 40 ids of the policy mean something else to it, the first is 10, 'w3' here and 'w4' there"):
        make_distill(tmp_path / "run", random_batch(1), teacher=str(folder))
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.raises(ValueError, match=r"a folder without a config\.json"):
        make_distill(tmp_path / "run", random_batch(1), teacher=str(folder))


def test_another_chat_template_and_more_tokens_do_not_matter(tmp_path: Path) -> None:
    single().save_pretrained(tmp_path)
    other = make_tokenizer()
    other.chat_template = "{{ messages }}"
    other.add_tokens(["more"])
    other.save_pretrained(tmp_path)
    check_teacher(str(tmp_path), make_tokenizer())


def test_what_cannot_be_a_teacher_is_refused(tmp_path: Path) -> None:
    model, batch = make_model(), random_batch(1)
    for teacher, kind, message in (
        (model, ValueError, "shares its weights with the student"),
        (make_model(vocab=VOCAB - 1), ValueError, "the teacher's embedding has 39 rows, the student's 40"),
        (make_model().base_model, TypeError, "without a language-model head"),
        (3, TypeError, "teacher= is a int"),
        (None, ValueError, "there is no teacher"),
    ):
        with pytest.raises(kind, match=message):
            make_distill(tmp_path, batch, model, teacher=teacher)
    two = make_args(tmp_path, AgentDistillConfig, teacher="some/model")
    with pytest.raises(ValueError, match="are two teachers"):
        AgentDistillTrainer(model, two, teacher=make_model())


def test_a_peft_teacher_is_read_with_its_adapters(tmp_path: Path) -> None:
    batch, model = random_batch(2, context="mixed"), make_model()
    adapted = get_peft_model(make_model(seed=TEACHER_SEED), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    (got,) = window_gradients(make_distill(tmp_path, batch, model, teacher=adapted))
    (wanted,) = window_gradients(make_distill(tmp_path, batch, model, teacher=adapted.merge_and_unload()))
    (plain,) = window_gradients(make_distill(tmp_path, batch, model))
    assert relative_error(got, wanted) < 1e-6 and relative_error(plain, wanted) > 1e-3

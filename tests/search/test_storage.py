"""The index as a folder: equal to the one in memory, whole or absent, safe under concurrent builders, the same bytes in every process."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bm25 import force, generated

from agent_gym.search import Document, LuceneBM25, storage

QUERIES = ["w1 w2", "w3 w3 of", "absent", "", "page w9"]


def folder_hash(folder: Path) -> dict[str, str]:
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("form", ["small", "large"])
def test_a_mapped_index_equals_the_one_in_memory(tmp_path: Path, form: str) -> None:
    documents = generated(300)
    memory = LuceneBM25.build(documents)
    for mapped in (LuceneBM25.build(iter(documents), tmp_path / "index"), LuceneBM25.open(tmp_path / "index")):
        assert force(mapped, form).search(QUERIES, 20) == memory.search(QUERIES, 20)
        assert list(mapped.documents) == documents
        assert mapped.documents[-1] == documents[-1]
        assert mapped.documents[3:5] == documents[3:5]
        assert (len(mapped), mapped.fingerprint, mapped.k1, mapped.b) == (300, memory.fingerprint, 0.9, 0.4)
        assert mapped.path == tmp_path / "index"
        assert pickle.loads(pickle.dumps(mapped)).search(QUERIES, 3) == memory.search(QUERIES, 3)
    with pytest.raises(IndexError):
        mapped.documents[300]


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=30)), max_size=6))
@settings(max_examples=25, deadline=None)
def test_any_document_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, pages: list[tuple[str, str]]) -> None:
    documents = [Document(f"{number}\ud800\n", title, text) for number, (title, text) in enumerate(pages)]
    index = LuceneBM25.build(documents, tmp_path_factory.mktemp("any") / "index")
    assert list(index.documents) == documents
    queries = [text for _, text in pages]
    assert index.search(queries, 9) == LuceneBM25.build(documents).search(queries, 9)


def test_an_empty_index_can_be_saved(tmp_path: Path) -> None:
    index = LuceneBM25.build([], tmp_path / "empty")
    assert index.search(["a b"], 2) == [[]]
    assert LuceneBM25.build([Document("1", "", "the")], tmp_path / "bare").search(["the"], 2) == [[]]


def test_only_the_found_documents_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = LuceneBM25.build(generated(500), tmp_path / "index")
    read = 0
    original = json.loads

    def count(line: bytes) -> object:
        nonlocal read
        read += 1
        return original(line)

    monkeypatch.setattr(storage.json, "loads", count)
    reopened = LuceneBM25.open(tmp_path / "index")
    assert len(reopened.search(["w1 w2"], 7)[0]) == len(index.search(["w1"], 7)[0]) == 7
    assert read == 1 + 7 + 7  # meta.json, and the hits of two searches


def test_a_folder_with_the_same_documents_is_opened_and_any_other_is_refused(tmp_path: Path) -> None:
    documents = generated(20)
    LuceneBM25.build(documents, tmp_path / "index")
    before = folder_hash(tmp_path / "index")
    assert LuceneBM25.build(documents, tmp_path / "index").search(QUERIES, 2)
    with pytest.raises(FileExistsError, match="remove it or name another"):
        LuceneBM25.build(generated(21), tmp_path / "index")
    with pytest.raises(FileExistsError):
        LuceneBM25.build(documents, tmp_path / "index", k1=1.0)
    assert folder_hash(tmp_path / "index") == before


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def documents() -> Iterator[Document]:
        yield Document("1", "", "a page")
        raise RuntimeError("the corpus broke")

    with pytest.raises(RuntimeError, match="the corpus broke"):
        LuceneBM25.build(documents(), tmp_path / "index")
    with pytest.raises(ValueError, match="id of its own"):
        LuceneBM25.build([Document("1", "", "a"), Document("1", "", "b")], tmp_path / "index")
    assert [file.name for file in tmp_path.iterdir()] == ["index.lock"]
    with pytest.raises(FileNotFoundError, match="no folder"):
        LuceneBM25.build([], tmp_path / "missing" / "index")


def damage(folder: Path, how: str) -> None:
    if how == "cut":
        (folder / "posting_counts.npy").write_bytes((folder / "posting_counts.npy").read_bytes()[:-3])
    elif how == "missing":
        (folder / "terms.bin").unlink()
    elif how == "no meta":
        (folder / "meta.json").write_text("{")
    elif how == "list":
        (folder / "meta.json").write_text("[]")
    else:
        meta = json.loads((folder / "meta.json").read_text())
        meta["analyzer"] = "other"
        (folder / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("how", "words"), [("cut", "damaged"), ("missing", "complete"), ("no meta", "complete"), ("list", "complete"), ("version", "version")]
)
def test_a_damaged_folder_is_refused_and_a_cache_rebuilds_it(tmp_path: Path, how: str, words: str) -> None:
    documents = generated(20)
    index = LuceneBM25.cached(documents, tmp_path)
    assert index.path is not None
    damage(index.path, how)
    with pytest.raises(ValueError, match=words):
        LuceneBM25.open(index.path)
    assert LuceneBM25.cached(documents, tmp_path).search(QUERIES, 5) == LuceneBM25.build(documents).search(QUERIES, 5)
    with pytest.raises(FileNotFoundError, match="no index folder"):
        LuceneBM25.open(tmp_path / "nowhere")


def test_a_cache_builds_once_and_again_when_the_corpus_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = storage._write
    monkeypatch.setattr(storage, "_write", lambda *arguments: built.append(original(*arguments)))
    cache = tmp_path / "new" / "cache"
    documents = generated(20)
    paths = [LuceneBM25.cached(documents, cache).path for _ in range(3)]
    assert len(built) == 1
    assert len(set(paths)) == 1
    assert LuceneBM25.cached(documents, cache, b=0.5).path not in paths
    assert LuceneBM25.cached(generated(21), cache).path not in paths
    assert len(built) == 3
    with pytest.raises(TypeError, match="one-time iterator"):
        LuceneBM25.cached(iter(documents), cache)


SCRIPT = textwrap.dedent(
    """
    import sys, time
    from agent_gym.search import Document, LuceneBM25, storage
    documents = [Document(f"d{n}", f"Title {n % 7}", " ".join(f"w{n * m % 31}" for m in range(1, 40)) + " the cats\\u2019s \\u6f22") for n in range(200)]
    built = []
    original = storage._write
    def slow(*arguments):
        built.append(original(*arguments))
        time.sleep(0.3)
    storage._write = slow
    index = LuceneBM25.cached(documents, sys.argv[1])
    print(len(built), [[(hit.document.id, hit.score) for hit in hits] for hits in index.search(["w1 w2 w2 cat", "title 3"], 9)])
    """
)


def start(cache: Path, hash_seed: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(cache)], stdout=subprocess.PIPE, text=True, env=environment)


def test_processes_that_build_at_once_end_with_one_index(tmp_path: Path) -> None:
    processes = [start(tmp_path, seed) for seed in ("0", "1", "2")]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(output.split()[0] for output in outputs) == ["0", "0", "1"]
    assert len({output.partition(" ")[2] for output in outputs}) == 1
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_every_process_and_hash_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    outputs = []
    for seed in ("0", "77"):
        (tmp_path / seed).mkdir()
        outputs.append(start(tmp_path / seed, seed).communicate(timeout=120)[0])
    assert outputs[0] == outputs[1] != ""
    one, two = ([path for path in (tmp_path / seed).iterdir() if path.is_dir()] for seed in ("0", "77"))
    assert [path.name for path in one] == [path.name for path in two]
    assert folder_hash(one[0]) == folder_hash(two[0])


def test_threads_that_build_at_once_end_with_one_index(tmp_path: Path) -> None:
    documents = generated(100)
    results = []
    threads = [threading.Thread(target=lambda: results.append(LuceneBM25.cached(documents, tmp_path).search(QUERIES, 5))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [LuceneBM25.build(documents).search(QUERIES, 5)] * 6


@pytest.mark.parametrize("key", ["fingerprint", "k1", "b", "total_length", "sizes", "format"])
@pytest.mark.parametrize("value", [None, "absent", [1]])
def test_an_index_without_its_facts_is_refused_and_the_cache_builds_it_again(tmp_path: Path, key: str, value: object) -> None:
    documents = generated(20)
    index = LuceneBM25.cached(documents, tmp_path)
    assert index.path is not None
    facts = index.path / "meta.json"
    meta = json.loads(facts.read_text())
    meta.pop(key) if value == "absent" else meta.update({key: value})
    facts.write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="build it again"):
        LuceneBM25.open(index.path)
    assert LuceneBM25.cached(documents, tmp_path).search(QUERIES, 5) == LuceneBM25.build(documents).search(QUERIES, 5)
    LuceneBM25.open(index.path)


def test_a_file_in_the_place_of_a_cached_index_is_replaced(tmp_path: Path) -> None:
    documents = generated(20)
    path = LuceneBM25.cached(documents, tmp_path / "one").path
    assert path is not None
    place = tmp_path / "two" / path.name
    place.parent.mkdir()
    place.write_text("no folder")
    assert LuceneBM25.cached(documents, tmp_path / "two").path == place
    assert place.is_dir()

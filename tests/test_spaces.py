"""The space of token ids."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.spaces import TokenBox


@given(st.lists(st.integers(0, 99), max_size=20))
def test_padding_comes_off_again(ids: list[int]) -> None:
    box = TokenBox(20, 100, 100)
    padded = box.pad(ids)
    assert padded.shape == (20,) and padded.dtype == np.int64 and padded in box
    assert box.unpad(padded).tolist() == ids
    assert box.unpad(padded, len(ids)).tolist() == ids


def test_a_shorter_array_is_whole_and_a_known_length_keeps_trailing_pads() -> None:
    box = TokenBox(4, 10, 0)
    assert box.unpad([5, 0]).tolist() == [5, 0]
    assert box.unpad(np.array([5, 0, 0, 0])).tolist() == [5]
    assert box.unpad(np.array([5, 0, 0, 0]), 2).tolist() == [5, 0]


def test_a_pad_of_its_own_widens_the_bound_by_one() -> None:
    assert TokenBox(4, 10, 10).high.max() == 10 and TokenBox(4, 10, 3).high.max() == 9


def test_samples_lie_in_the_space_and_follow_the_seed() -> None:
    one, two = TokenBox(50, 1000, 7, seed=3), TokenBox(50, 1000, 7, seed=3)
    drawn = [one.sample() for _ in range(20)]
    assert all(one.contains(sample) for sample in drawn) and len({len(one.unpad(sample)) for sample in drawn}) > 5
    assert all(np.array_equal(sample, two.sample()) for sample in drawn)


@pytest.mark.parametrize("wrong", [(0, 10, 0), (5, 0, 0), (5, 10, 11), (5, 10, -1)])
def test_impossible_sizes_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        TokenBox(*wrong)


def test_too_many_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        TokenBox(2, 10, 0).pad([1, 2, 3])


def test_equality_and_pickling() -> None:
    box = TokenBox(5, 10, 0)
    assert pickle.loads(pickle.dumps(box)) == box and box != TokenBox(5, 10, 1)

"""`TokenBox`: the space of token-id sequences, a `gymnasium.spaces.Box` that knows its padding.

A sequence of ids shorter than the box is right-padded with `pad_id`. Everything that works on a Box (vector environments, shared memory,
`NumpyToTorch`, other people's checkers) works on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = ["TokenBox"]


class TokenBox(spaces.Box):
    """Token ids as an int64 vector of fixed length, right-padded.

    Args:
        max_length: the number of places, at least 1.
        vocab_size: ids run from 0 to vocab_size - 1.
        pad_id: the padding id; may be `vocab_size` itself, where the vocabulary has no id to spare, and then the bound grows by one.
        seed: of `sample`.

    Raises:
        ValueError: if a size is not positive or the pad id lies outside [0, vocab_size].
    """

    def __init__(self, max_length: int, vocab_size: int, pad_id: int, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 1 or vocab_size < 1:
            raise ValueError(f"TokenBox needs a positive max_length and vocab_size, not {max_length} and {vocab_size}")
        if not 0 <= pad_id <= vocab_size:
            raise ValueError(f"pad_id must lie in [0, vocab_size={vocab_size}], not {pad_id}")
        self.max_length = int(max_length)
        self.vocab_size = int(vocab_size)
        self.pad_id = int(pad_id)
        super().__init__(low=0, high=max(vocab_size - 1, pad_id), shape=(max_length,), dtype=np.int64, seed=seed)

    def pad(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids right-padded to the box.

        Args:
            ids: at most `max_length` ids, int64 of shape (n,).

        Returns:
            An int64 array of shape (max_length,).

        Raises:
            ValueError: if there are more ids than places.
        """
        if len(ids) > self.max_length:
            raise ValueError(f"{len(ids)} ids do not fit into a TokenBox of {self.max_length} places")
        array = np.full(self.max_length, self.pad_id, dtype=np.int64)
        array[: len(ids)] = ids
        return array

    def unpad(self, array: Sequence[int] | NDArray[np.int64], length: int | None = None) -> NDArray[np.int64]:
        """Return the ids without their padding.

        Args:
            array: ids, int64 of shape (n,).
            length: the number of ids, when it is known (`info["observation_length"]`). Without it an array exactly as long as the box
                loses its trailing run of `pad_id`, and anything shorter is taken whole.

        Returns:
            An int64 array, shape (length,).
        """
        values = np.asarray(array, dtype=np.int64).reshape(-1)
        if length is not None:
            return values[:length]
        if len(values) != self.max_length:
            return values
        kept = np.flatnonzero(values != self.pad_id)
        return values[: int(kept[-1]) + 1 if len(kept) else 0]

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.int64]:
        """Draw a random length and that many random ids of the vocabulary, padded.

        Args:
            mask: not supported, as in Box.
            probability: not supported, as in Box.

        Returns:
            An int64 array of shape (max_length,).

        Raises:
            gymnasium.error.Error: if a mask or probabilities are given.
        """
        if mask is not None or probability is not None:
            super().sample(mask=mask, probability=probability)  # raises, in Gymnasium's own words
        length = int(self.np_random.integers(1, self.max_length + 1))
        return self.pad(self.np_random.integers(0, self.vocab_size, size=length))

    def __repr__(self) -> str:
        return f"TokenBox(max_length={self.max_length}, vocab_size={self.vocab_size}, pad_id={self.pad_id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenBox) and (self.max_length, self.vocab_size, self.pad_id) == (
            other.max_length,
            other.vocab_size,
            other.pad_id,
        )

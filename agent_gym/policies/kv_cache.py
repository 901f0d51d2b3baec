"""The key-value cache of a batch of episodes, one row each, and of the episodes that wait for their environment.

Rows are left-aligned: the key of a row's n-th token stands in column n, so rows of different lengths need no padding tokens, a row's
kept prefix can be cut anywhere, and position ids are column numbers. A forward pass over a ragged chunk is right-aligned; what its holes
would write goes to a column behind everything that is visible.

All key and value tensors of one shape are stacked into one tensor (n, rows, heads, columns, dim), so that loading or saving an episode is
one copy, whatever the number of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

__all__ = ["CacheLayout", "RowCache", "Saved"]

COLUMN_STEP = 64
"""Columns are allocated in multiples of this."""


@dataclass(frozen=True)
class CacheLayout:
    """Where each layer's keys and values stand in the stacked tensors.

    Attributes:
        shapes: per stack: (number of tensors, heads, dim, dtype, device).
        keys: per layer (stack, index).
        values: per layer (stack, index).
    """

    shapes: tuple[tuple[int, int, int, torch.dtype, torch.device], ...]
    keys: tuple[tuple[int, int], ...]
    values: tuple[tuple[int, int], ...]

    @classmethod
    def from_cache(cls, cache: Any) -> CacheLayout:
        """Read the layout from a cache that a model has filled.

        Args:
            cache: a `transformers.Cache` with one filled layer per model layer.

        Returns:
            The layout.

        Raises:
            AttributeError: if a layer keeps no keys and values (linear attention, state-space layers).
        """
        counts: dict[tuple[int, int, torch.dtype, torch.device], int] = {}
        places: list[list[tuple[tuple[int, int, torch.dtype, torch.device], int]]] = [[], []]
        for layer in cache.layers:
            for kind, tensor in enumerate((layer.keys, layer.values)):
                shape = (int(tensor.shape[1]), int(tensor.shape[3]), tensor.dtype, tensor.device)
                places[kind].append((shape, counts.setdefault(shape, 0)))
                counts[shape] += 1
        stacks = list(counts)
        keys, values = (tuple((stacks.index(shape), index) for shape, index in kind) for kind in places)
        return cls(tuple((counts[shape], *shape) for shape in stacks), keys, values)

    def token_bytes(self) -> int:
        """Return the memory of one token, in bytes.

        Returns:
            A number of bytes.
        """
        return sum(count * heads * dim * dtype.itemsize for count, heads, dim, dtype, _ in self.shapes)


@dataclass
class Saved:
    """The cache of one waiting episode.

    Attributes:
        ids: the ids whose keys and values are kept, shape (n,).
        tensors: per stack, shape (tensors, heads, n, dim), in the dtype of the model's cache.
    """

    ids: Any
    tensors: list[torch.Tensor] = field(default_factory=list)


class _RowLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers does not type its hook
    """One layer's window into the stacked tensors; `update` writes the new columns and returns what is visible."""

    is_sliding = False

    def __init__(self, owner: RowCache, key: tuple[int, int], value: tuple[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self.owner, self.key_place, self.value_place = owner, key, value
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the owner allocates."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values into their columns.

        Args:
            key_states: shape (rows, heads, chunk, dim).
            value_states: shape (rows, heads, chunk, dim).
            args: ignored.
            kwargs: ignored.

        Returns:
            All visible keys and values, shape (rows, heads, width, dim).
        """
        owner = self.owner
        return owner.write(self.key_place, key_states), owner.write(self.value_place, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the visible columns; masks are prepared by the engine, so nothing depends on it."""
        return self.owner.width, 0

    def get_seq_length(self) -> int:
        """Return the visible columns without the present chunk."""
        return max(self.owner.width - self.owner.chunk, 0)

    def get_max_length(self) -> int:
        """Return -1: it grows."""
        return -1


class RowCache:
    """Keys and values of the rows in flight.

    Args:
        layout: of the model.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout
        self.stacks: list[torch.Tensor] = [
            torch.zeros((count, 0, heads, 0, dim), dtype=dtype, device=device) for count, heads, dim, dtype, device in layout.shapes
        ]
        self.rows = 0
        self.width = 0
        self.chunk = 0
        self._first, self._last = 0, 0
        self._row_index = torch.zeros((0, 1), dtype=torch.int64)
        self._columns = torch.zeros((0, 1), dtype=torch.int64)
        self._index: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}
        self.cache = Cache(layers=[_RowLayer(self, key, value) for key, value in zip(layout.keys, layout.values, strict=True)])

    def reserve(self, rows: int, columns: int) -> None:
        """Make room.

        Args:
            rows: at least this many rows.
            columns: at least this many visible columns (one more is kept behind them).
        """
        have_rows, have_columns = self.stacks[0].shape[1], self.stacks[0].shape[3]
        if rows <= have_rows and columns + 1 <= have_columns:
            return
        rows = max(rows, have_rows)
        columns = max(-(-(columns + 1) // COLUMN_STEP) * COLUMN_STEP, have_columns)
        for number, old in enumerate(self.stacks):
            new = old.new_zeros((old.shape[0], rows, old.shape[2], columns, old.shape[4]))
            new[:, : self.rows, :, :have_columns] = old[:, : self.rows]
            self.stacks[number] = new

    def copy_row(self, source: int, target: int, columns: int) -> None:
        """Put one row's first columns over another row's.

        Args:
            source: a row.
            target: another row.
            columns: how many.
        """
        for stack in self.stacks:
            stack[:, target, :, :columns] = stack[:, source, :, :columns]

    def load(self, row: int, saved: Saved, length: int) -> None:
        """Put the first `length` columns of a waiting episode into a row.

        Args:
            row: where to.
            saved: of at least `length` ids, in the layout of this cache.
            length: how many columns.
        """
        for stack, tensor in zip(self.stacks, saved.tensors, strict=True):
            stack[:, row, :, :length] = tensor[:, :, :length]

    def save(self, row: int, length: int) -> list[torch.Tensor]:
        """Return copies of the first `length` columns of a row, one tensor per stack.

        Args:
            row: which one.
            length: how many columns.

        Returns:
            Tensors of shape (tensors, heads, length, dim), in the dtype of the cache.
        """
        return [stack[:, row, :, :length].clone() for stack in self.stacks]

    def aim(self, first: int, last: int, columns: torch.Tensor, width: int) -> None:
        """Say where the next forward pass writes.

        Args:
            first: the first row of the pass.
            last: the row behind its last.
            columns: the column of each chunk position, shape (last - first, chunk), int64; holes are given `width`.
            width: the number of visible columns.
        """
        self._first, self._last, self.width, self.chunk = first, last, width, columns.shape[1]
        self._columns = columns
        if self._row_index.shape[0] != last - first or self._row_index.device != columns.device:
            self._row_index = torch.arange(last - first, device=columns.device)[:, None]
        self._index = {columns.device: (self._row_index, columns)}

    def write(self, place: tuple[int, int], states: torch.Tensor) -> torch.Tensor:
        """Write a chunk and return the visible columns of the present rows.

        Args:
            place: stack, and tensor in it.
            states: shape (rows, columns of the chunk, heads, dim), in the dtype of the cache.

        Returns:
            A view of shape (rows, heads, width, dim) and the same dtype.
        """
        rows = self.stacks[place[0]][place[1], self._first : self._last]
        index = self._index.get(states.device)
        if index is None:
            index = self._index[states.device] = (self._row_index.to(states.device), self._columns.to(states.device))
        rows[index[0], :, index[1]] = states.transpose(1, 2)
        return rows[:, :, : self.width]

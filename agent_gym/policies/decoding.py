"""The batch engine behind `TransformersPolicy`: ragged prefill, lockstep decoding, rows that come and go.

`Decoder.round` takes new requests, prefills them behind the rows in flight, and decodes until enough rows have ended (or others wait), then
returns the ended ones. What ends a round depends on the tokens alone unless a request arrives while it runs, so a run whose environments
answer at once is reproducible.

Two ways to run the model are known. With the row cache (`kv_cache.py`) every token is computed once, over all turns of an episode. A model
for which that is wrong or impossible (linear attention, state-space layers, position biases made from a padding mask; found by a small
comparison with a plain forward before the first use) is recomputed over the whole right-padded sequence for each token: slow, and right
for every causal model.
"""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from agent_gym.policies.base import Sampling, uniforms
from agent_gym.policies.kv_cache import CacheLayout, RowCache, Saved
from agent_gym.policies.sampler import filter_logits, sample_tokens

__all__ = ["Decoder", "Request"]

KEEP_BYTES = 2**28
"""An empty batch keeps its memory for the next one up to this size; a larger one gives it back (to the trainer, say)."""

COMPACT_BELOW = 0.75
"""Ended rows are dropped from the batch when at most this share of it lives."""
ROUND_SHARE = 0.5
"""A round ends when this share of the rows that were alive at its start has ended."""
_NOT_FINITE = "the model's logits are not finite numbers; the weights have probably diverged"
PATIENCE = 8
"""A round ends when requests have waited for this many tokens."""


@dataclass(eq=False)
class Request:
    """One reply in the making.

    Attributes:
        prompt: the whole prompt, int64, shape (n,).
        tokens: what was sampled, int64, shape (m,); None until the request has ended.
        logprobs: of `tokens`, float32, shape (m,); None until the request has ended.
    """

    prompt: NDArray[np.int64]
    sampling: Sampling
    seed: int
    session: Hashable | None
    max_new: int
    cancelled: Callable[[], bool] = field(default=lambda: False)
    tokens: NDArray[np.int64] | None = None
    logprobs: NDArray[np.float32] | None = None
    finish_reason: str = "stop"


class Decoder:
    """Runs requests on a model, several at once. All methods but `forget` run in one thread.

    Args:
        model: a causal language model of transformers.
        pad_id: an id that may stand in holes.
        max_prefill_tokens: the most positions of one prefill pass, holes included.
        max_cache_bytes: of the waiting episodes' caches; the longest unused are dropped first.
    """

    def __init__(self, model: Any, *, pad_id: int, max_prefill_tokens: int, max_cache_bytes: int) -> None:
        self.model = model
        self.pad_id = pad_id
        self.max_prefill_tokens = max_prefill_tokens
        self.max_cache_bytes = max_cache_bytes
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.config = base.config.get_text_config()
        names = set(inspect.signature(type(base).forward).parameters)
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._forward_names = names
        self._extra = {"logits_to_keep": 1} if "logits_to_keep" in names else {}
        self._layout: CacheLayout | None = None
        self._use_cache: bool | None = None
        self._rows: RowCache | None = None
        self._weights: tuple[int, ...] = ()
        self.saved: OrderedDict[Hashable, Saved] = OrderedDict()
        self.stop = False
        self.counts = {"prefilled": 0, "reused": 0, "decoded": 0, "passes": 0, "rounds": 0}
        self._clear_batch()

    # ------------------------------------------------------------------ what a caller sees
    @property
    def device(self) -> torch.device:
        """Where the inputs go: the device of the first parameter."""
        return torch.device(next(iter(self.model.parameters())).device)

    @property
    def live(self) -> int:
        """The number of requests in flight."""
        return int(self._alive.sum())

    def forget(self, session: Hashable) -> None:
        """Drop a waiting episode's cache.

        Args:
            session: of the episode; an unknown one is ignored.
        """
        self.saved.pop(session, None)

    def reset_cache(self) -> None:
        """Drop all waiting episodes' caches."""
        self.saved.clear()

    def abort(self) -> None:
        """Drop the requests in flight."""
        self._clear_batch()

    def round(self, new: Sequence[Request], waiting: Callable[[], int] = lambda: 0) -> list[Request]:
        """Take new requests and decode until enough have ended.

        Args:
            new: the requests to take in.
            waiting: the number of requests that wait outside.

        Returns:
            The ended requests, filled in.

        Raises:
            FloatingPointError: if the model's logits are not finite numbers.
        """
        with torch.inference_mode(), _evaluating(self.model):
            self._check_weights()
            if self._use_cache is None:
                self._use_cache = self._probe()
            self._drop_cancelled()
            ended: list[Request] = []
            if new:
                self._compact(force=True)
                self._admit(list(new), ended)
            goal = max(1, round(ROUND_SHARE * (self.live + len(ended))))
            patience = PATIENCE
            while self.live and len(ended) < goal and not self.stop:
                outside = waiting()
                if outside:
                    patience -= 1
                    if outside >= 0.25 * self.live or patience <= 0:
                        break
                self._compact()
                self._decode(ended)
            self._compact()
            if self._use_cache:
                self._bound_cache()
            self.counts["rounds"] += 1
        return ended

    # ------------------------------------------------------------------ the batch
    def _clear_batch(self) -> None:
        self._requests: list[Request] = []
        self._alive = np.zeros(0, dtype=bool)
        self._lengths = np.zeros(0, dtype=np.int64)  # tokens whose keys and values are in the row
        self._counts = np.zeros(0, dtype=np.int64)  # sampled tokens
        self._limits = np.zeros(0, dtype=np.int64)
        self._seeds = np.zeros(0, dtype=np.uint64)
        self._last = np.zeros(0, dtype=np.int64)
        self._stop_set = np.zeros(0, dtype=np.int64)
        self._tokens = np.zeros((0, 0), dtype=np.int64)
        self._logprobs = np.zeros((0, 0), dtype=np.float32)
        self._stop_sets: list[tuple[int, ...]] = []
        self._stop_table: NDArray[np.bool_] | None = None
        self._settings: tuple[torch.Tensor, ...] | None = None
        self._filtering = False
        if self._rows is not None:
            self._rows.rows = 0
            if sum(stack.nbytes for stack in self._rows.stacks) > KEEP_BYTES:
                self._rows = None

    def _extend(self, new: list[Request]) -> None:
        """Append bookkeeping for new rows."""
        count = len(new)
        self._requests += new
        self._alive = np.append(self._alive, np.ones(count, dtype=bool))
        self._lengths = np.append(self._lengths, np.zeros(count, dtype=np.int64))
        self._counts = np.append(self._counts, np.zeros(count, dtype=np.int64))
        self._limits = np.append(self._limits, np.array([r.max_new for r in new], dtype=np.int64))
        self._seeds = np.append(self._seeds, np.array([r.seed % 2**64 for r in new], dtype=np.uint64))
        self._last = np.append(self._last, np.zeros(count, dtype=np.int64))
        sets = []
        for request in new:
            stops = request.sampling.stop_token_ids
            if stops not in self._stop_sets:
                self._stop_sets.append(stops)
                self._stop_table = None
            sets.append(self._stop_sets.index(stops))
        self._stop_set = np.append(self._stop_set, np.array(sets, dtype=np.int64))
        wide = max(self._tokens.shape[1], 32)
        for name in ("_tokens", "_logprobs"):
            old = getattr(self, name)
            room = np.zeros((len(self._requests), wide), dtype=old.dtype)
            room[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, room)
        self._settings = None

    def _keep(self, rows: NDArray[np.int64]) -> None:
        self._requests = [self._requests[row] for row in rows]
        for name in ("_alive", "_lengths", "_counts", "_limits", "_seeds", "_last", "_stop_set", "_tokens", "_logprobs"):
            setattr(self, name, getattr(self, name)[rows])
        self._settings = None

    def _compact(self, force: bool = False) -> None:
        """Drop ended rows when they are many, or in any case."""
        total, live = len(self._requests), self.live
        if live == total or (not force and live > COMPACT_BELOW * total):
            return
        if not live:
            self._clear_batch()
            return
        order = np.arange(total)
        movers = live + np.flatnonzero(self._alive[live:])  # living rows behind the new end go into the gaps before it
        gaps = np.flatnonzero(~self._alive[:live])
        order[gaps] = movers
        if self._use_cache:
            cache = self._row_cache()
            for source, target in zip(movers.tolist(), gaps.tolist(), strict=True):
                cache.copy_row(source, target, int(self._lengths[source]))
            cache.rows = live
        self._keep(order[:live])

    def _drop_cancelled(self) -> None:
        for row, request in enumerate(self._requests):
            if self._alive[row] and request.cancelled():
                self._alive[row] = False

    # ------------------------------------------------------------------ prefill
    def _admit(self, new: list[Request], ended: list[Request]) -> None:
        """Prefill new requests and sample their first tokens."""
        if not self._use_cache:
            first = len(self._requests)
            self._extend(new)
            self._lengths[first:] = [len(r.prompt) for r in new]
            self._sample(self._plain_logits(range(first, len(self._requests))), first, ended)
            return
        starts = {id(r): self._reusable(r) for r in new}
        order = sorted(new, key=lambda r: len(r.prompt) - starts[id(r)])
        unique: list[Request] = []
        twins: list[tuple[Request, int]] = []
        seen: dict[bytes, int] = {}
        for request in order:  # episodes of one group begin with the same prompt: it is computed once
            key = request.prompt.tobytes() if starts[id(request)] == 0 else b""
            if key and key in seen:
                twins.append((request, seen[key]))
                continue
            if key:
                seen[key] = len(unique)
            unique.append(request)
        first = len(self._requests)
        rows = [*unique, *(request for request, _ in twins)]
        self._extend(rows)
        cache = self._row_cache()
        cache.reserve(len(self._requests), max(int(self._lengths.max()), *(len(r.prompt) for r in rows)) + 1)
        cache.rows = len(self._requests)
        begin = np.array([starts[id(r)] for r in unique], dtype=np.int64)
        sizes = np.array([len(r.prompt) for r in unique], dtype=np.int64) - begin
        for row, request in enumerate(unique):
            if begin[row]:
                cache.load(first + row, self.saved[request.session], int(begin[row]))
        logits = torch.cat(
            [self._prefill(unique, first, lo, hi, begin[lo:hi], sizes[lo:hi]) for lo, hi in _groups(sizes, self.max_prefill_tokens)]
        )
        if twins:
            sources = [source for _, source in twins]
            for target, (request, source) in enumerate(twins, start=first + len(unique)):
                cache.copy_row(first + source, target, len(request.prompt))
            logits = torch.cat([logits, logits[torch.tensor(sources, device=logits.device)]])
        self._lengths[first:] = [len(r.prompt) for r in rows]
        self.counts["prefilled"] += int(sizes.sum())
        self.counts["reused"] += int(begin.sum())
        self._sample(logits, first, ended)

    def _reusable(self, request: Request) -> int:
        """Return how many ids of the prompt are computed already; at least one is left to compute."""
        saved = self.saved.get(request.session) if request.session is not None else None
        if saved is None:
            return 0
        size = min(len(saved.ids), len(request.prompt) - 1)
        unequal = np.flatnonzero(saved.ids[:size] != request.prompt[:size])
        return int(unequal[0]) if len(unequal) else size

    def _prefill(
        self, requests: list[Request], first: int, lo: int, hi: int, begin: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> torch.Tensor:
        """Run one right-aligned ragged chunk, in pieces when it is long. Returns the last logits, shape (rows, vocabulary)."""
        count, longest = hi - lo, int(sizes.max())
        ids = np.full((count, longest), self.pad_id, dtype=np.int64)
        places = np.full((count, longest), -1, dtype=np.int64)
        for row in range(count):
            size, start = int(sizes[row]), int(begin[row])
            ids[row, longest - size :] = requests[lo + row].prompt[start:]
            places[row, longest - size :] = np.arange(start, start + size)
        piece = max(1, self.max_prefill_tokens // count)
        logits = torch.empty(0)
        for left in range(0, longest, piece):
            logits = self._forward(ids[:, left : left + piece], places[:, left : left + piece], first + lo, first + hi)
        return logits

    def _row_cache(self) -> RowCache:
        if self._rows is None:
            assert self._layout is not None
            self._rows = RowCache(self._layout)
        return self._rows

    # ------------------------------------------------------------------ decoding
    def _decode(self, ended: list[Request]) -> None:
        total = len(self._requests)
        if self._use_cache:
            cache = self._row_cache()
            cache.reserve(total, int(self._lengths.max()) + 1)
            logits = self._forward(self._last[:, None], self._lengths[:, None], 0, total)
        else:
            logits = self._plain_logits(range(total))
        self._lengths += self._alive
        self.counts["decoded"] += self.live
        self._sample(logits, 0, ended)

    def _forward(self, ids: NDArray[np.int64], places: NDArray[np.int64], first: int, last: int) -> torch.Tensor:
        """Run the model over a chunk of some rows and write its keys and values.

        Args:
            ids: shape (rows, chunk).
            places: the column of each id, -1 for holes, shape (rows, chunk).
            first: the first row.
            last: the row behind the last.

        Returns:
            The logits at the last position, shape (rows, vocabulary).
        """
        device, cache = self.device, self._row_cache()
        width = int(places.max()) + 1
        columns = torch.from_numpy(places).to(device)
        holes = bool((places < 0).any())
        shown = columns.clamp(min=0) if holes else columns
        cache.aim(first, last, columns.masked_fill(columns < 0, width) if holes else columns, width)
        visible = torch.arange(width, device=device) <= shown[:, :, None]
        outputs = self.model(
            input_ids=torch.from_numpy(np.ascontiguousarray(ids)).to(device),
            attention_mask=self._mask(visible[:, None], shown, width),
            position_ids=shown,
            use_cache=True,
            **{self._cache_name: cache.cache},
            **self._extra,
        )
        self.counts["passes"] += 1
        logits: torch.Tensor = outputs.logits[:, -1]
        return logits

    def _mask(self, visible: torch.Tensor, shown: torch.Tensor, width: int) -> Any:
        """Return what the model takes as attention mask: a tensor, or one per kind of layer."""
        kinds = set(getattr(self.config, "layer_types", None) or ())
        window = getattr(self.config, "sliding_window", None)
        if not getattr(self.config, "use_sliding_window", True):
            window = None
        if not kinds:
            kinds = {"sliding_attention"} if window else {"full_attention"}
            masks = {"only": self._dress(visible if not window else visible & self._near(shown, width, window))}
            return masks["only"]
        masks = {"full_attention": self._dress(visible)}
        if "sliding_attention" in kinds:
            if not window:
                raise NotImplementedError("the model has sliding layers, but its configuration states no window")
            masks["sliding_attention"] = self._dress(visible & self._near(shown, width, window))
        if unknown := kinds - set(masks):
            raise NotImplementedError(f"layers of the kind {sorted(unknown)} keep no plain cache")
        return masks if len(kinds) > 1 else masks[next(iter(kinds))]

    @staticmethod
    def _near(shown: torch.Tensor, width: int, window: int) -> torch.Tensor:
        return (torch.arange(width, device=shown.device) > (shown - window)[:, :, None])[:, None]

    def _dress(self, visible: torch.Tensor) -> torch.Tensor:
        """Give the mask the form of the attention implementation: booleans for sdpa, an addend for eager attention."""
        if self.config._attn_implementation == "sdpa":
            return visible
        dtype = next(iter(self.model.parameters())).dtype
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)

    def _plain_logits(self, rows: Sequence[int]) -> torch.Tensor:
        """Return the last logits of some rows by a plain forward over everything, right-padded."""
        sequences = [np.concatenate([self._requests[row].prompt, self._tokens[row, : self._counts[row]]]) for row in rows]
        return self._plain_forward(sequences)

    def _plain_forward(self, sequences: Sequence[NDArray[np.int64]]) -> torch.Tensor:
        sizes = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        logits = []
        for lo, hi in _groups(np.full(len(sizes), sizes.max()), self.max_prefill_tokens):
            longest = int(sizes[lo:hi].max())
            ids = np.full((hi - lo, longest), self.pad_id, dtype=np.int64)
            for row in range(lo, hi):
                ids[row - lo, : sizes[row]] = sequences[row]
            mask = torch.from_numpy((np.arange(longest) < sizes[lo:hi, None]).astype(np.int64)).to(self.device)
            extra = {"use_cache": False} if "use_cache" in self._forward_names else {}
            outputs = self.model(input_ids=torch.from_numpy(ids).to(self.device), attention_mask=mask, **extra)
            self.counts["passes"] += 1
            at = torch.from_numpy(sizes[lo:hi] - 1).to(outputs.logits.device)
            logits.append(outputs.logits[torch.arange(hi - lo, device=at.device), at])
        return torch.cat(logits)

    # ------------------------------------------------------------------ sampling and ending
    def _sample(self, logits: torch.Tensor, first: int, ended: list[Request]) -> None:
        """Sample a token for each row from `first` on, and end the rows that are done."""
        total = len(self._requests)
        if self._counts.max() >= self._tokens.shape[1]:
            self._tokens = np.pad(self._tokens, ((0, 0), (0, self._tokens.shape[1])))
            self._logprobs = np.pad(self._logprobs, ((0, 0), (0, self._logprobs.shape[1])))
        if self._settings is None:
            self._settings = self._sampling_tensors(logits.device)
        temperature, greedy, top_k, top_p, min_p = self._settings
        scaled = logits.float()
        if temperature.numel():
            scaled = scaled / temperature[first:, None]
        if self._filtering:
            scaled = filter_logits(scaled, top_k[first:], top_p[first:], min_p[first:])
        uniform = torch.from_numpy(uniforms(self._seeds[first:], self._counts[first:].astype(np.uint64)))
        uniform = uniform.to(logits.device) if logits.device.type != "mps" else uniform.float().to(logits.device)
        drawn, found = sample_tokens(scaled, uniform, greedy[first:] if greedy.numel() else None)
        tokens, logprobs = drawn.cpu().numpy(), found.cpu().numpy()
        alive = self._alive[first:]
        if np.isnan(logprobs[alive]).any():
            raise FloatingPointError(_NOT_FINITE)
        rows = np.arange(first, total)
        self._tokens[rows, self._counts[first:]] = tokens
        self._logprobs[rows, self._counts[first:]] = logprobs
        self._counts[first:] += alive
        self._last[first:] = tokens
        if self._stop_table is None:
            self._stop_table = np.zeros((len(self._stop_sets), logits.shape[-1]), dtype=bool)
            for number, stops in enumerate(self._stop_sets):
                self._stop_table[number, [s for s in stops if 0 <= s < logits.shape[-1]]] = True
        stopped = self._stop_table[self._stop_set[first:], tokens]
        done = alive & (stopped | (self._counts[first:] >= self._limits[first:]))
        for offset in np.flatnonzero(done):
            self._end(first + int(offset), bool(stopped[offset]), ended)

    def _sampling_tensors(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return temperature, greedy, top_k, top_p, min_p per row; the first two are empty when they would change nothing."""
        settings = [request.sampling for request in self._requests]
        heat = [1.0 if s.temperature == 0.0 else s.temperature for s in settings]
        greedy = [s.temperature == 0.0 for s in settings]
        self._filtering = any(s.top_k or s.top_p < 1.0 or s.min_p for s in settings)
        return (
            torch.tensor(heat if any(h != 1.0 for h in heat) else [], dtype=torch.float32, device=device),
            torch.tensor(greedy if any(greedy) else [], dtype=torch.bool, device=device),
            torch.tensor([s.top_k for s in settings], dtype=torch.int64, device=device),
            torch.tensor([s.top_p for s in settings], dtype=torch.float32, device=device),
            torch.tensor([s.min_p for s in settings], dtype=torch.float32, device=device),
        )

    def _end(self, row: int, stopped: bool, ended: list[Request]) -> None:
        request, count = self._requests[row], int(self._counts[row])
        self._alive[row] = False
        request.tokens = self._tokens[row, :count].copy()
        request.logprobs = self._logprobs[row, :count].copy()
        request.finish_reason = "stop" if stopped else "length" if request.max_new == request.sampling.max_tokens else "context"
        if request.session is not None and self._use_cache and not request.cancelled():
            length = int(self._lengths[row])
            ids = np.concatenate([request.prompt, request.tokens])[:length]
            self.saved.pop(request.session, None)
            self.saved[request.session] = Saved(ids, self._row_cache().save(row, length))
        ended.append(request)

    def _bound_cache(self) -> None:
        """Drop the longest unused caches over the limit; a dropped episode is prefilled anew."""
        assert self._layout is not None
        allowed = self.max_cache_bytes // self._layout.token_bytes()
        kept = sum(len(saved.ids) for saved in list(self.saved.values()))
        while kept > allowed and self.saved:
            kept -= len(self.saved.popitem(last=False)[1].ids)

    # ------------------------------------------------------------------ the model
    def _check_weights(self) -> None:
        """Drop the caches when a weight was written or replaced since the last round."""
        stamp: list[int] = []
        for parameter in self.model.parameters():
            stamp.append(parameter.data_ptr())
            stamp.append(0 if parameter.is_inference() else parameter._version)
        if tuple(stamp) != self._weights:
            self._weights = tuple(stamp)
            self.reset_cache()

    def _probe(self) -> bool:
        """Compare the row cache with a plain forward on a few random ids; False when it is wrong or impossible for this model."""
        size = int(self.config.vocab_size)
        draw = np.random.default_rng(0)
        prompts = [draw.integers(0, size, n) for n in (9, 4)]
        chunks = [draw.integers(0, size, n) for n in (3, 5)]
        try:
            cache = DynamicCache()
            self.model(
                input_ids=torch.from_numpy(prompts[0][None]).to(self.device), use_cache=True, **{self._cache_name: cache}, **self._extra
            )
            self._layout = CacheLayout.from_cache(cache)
            rows = self._row_cache()
            rows.reserve(2, 16)
            rows.rows = 2
            got = []
            for parts, begin in ((prompts, [0, 0]), (chunks, [9, 4])):
                requests = [
                    Request(np.concatenate([np.zeros(b, dtype=np.int64), part]), Sampling(), 0, None, 1)
                    for part, b in zip(parts, begin, strict=True)
                ]
                got.append(self._prefill(requests, 0, 0, 2, np.array(begin), np.array([len(part) for part in parts])))
            want = [self._plain_forward(prompts), self._plain_forward([np.concatenate(pair) for pair in zip(prompts, chunks, strict=True)])]
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError, NotImplementedError, AssertionError) as error:
            return self._without_cache(f"{type(error).__name__}: {error}")
        finally:
            self._rows = None
        one, other = torch.cat(got).float(), torch.cat(want).float()
        worst = float((one - other).abs().max())
        if not torch.isfinite(other).all():
            raise FloatingPointError(_NOT_FINITE)
        assert self._layout is not None
        exact = all(shape[3] == torch.float32 for shape in self._layout.shapes)
        if not worst <= (1e-3 if exact else 0.1) * max(1.0, float(other.abs().max())):
            return self._without_cache(f"its logits differ by {worst:.3g} from a plain forward")
        return True

    def _without_cache(self, reason: str) -> bool:
        self._layout = None
        warnings.warn(
            f"{type(self.model).__name__} cannot use the key-value cache over turns ({reason}); every token is computed from the whole prompt, which is slow",
            stacklevel=2,
        )
        return False


def _groups(sizes: NDArray[np.int64], budget: int) -> Iterator[tuple[int, int]]:
    """Cut rows sorted by size into passes of at most `budget` positions with few holes."""
    first = 0
    real = 0
    for row, size in enumerate(sizes.tolist()):
        area = (row - first + 1) * size
        holes = area - real - size
        if row > first and (area > budget or holes > max(512, 0.25 * (real + size))):
            yield first, row
            first, real = row, 0
        real += size
    yield first, len(sizes)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch dropout and checkpointing off for a while, without `model.eval()` being seen afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True

"""Packs of an epoch: their plan, the file that keeps them, their padding and their work."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.packing.algorithms import STRATEGIES, fewest_packs
from pipeline.data.packing.budget import PackBudget, Packs, check_sizes, item_type, join_packs
from pipeline.data.permutation import make_permutation
from slurm_jobs.shared.errors import DamagedFileError
from slurm_jobs.shared.files import atomic_writer

# Plan files: the packs of an epoch, computed once and memory-mapped by every rank.
#
#     4,096 bytes   magic, JSON (format version, sizes, types, checksums, key), spaces, xxh3 of
#                   all that
#     items         int32 or int64, little-endian
#     bounds        int64, little-endian, from the next multiple of 8 on
#
# The key states the inputs and settings of the packs; opening a file requires the expected key.
# The caller defines it: the data set's fingerprint, the strategy, the budget, the seed, the
# epoch.


FORMAT_VERSION = 1
"""Raised when the layout, or the packs for equal keys, change."""
_MAGIC = b"slurm-jobs-packs\n"
_HEADER_BYTES = 4096
_DIGEST_BYTES = 16
_CHECKED_BYTES = 1 << 24


def plan_name(key: Mapping[str, Any]) -> str:
    """Return a file name for packs with this key; different keys have different names."""
    return f"packs-{xxhash.xxh3_64_hexdigest(_as_json({'version': FORMAT_VERSION, **key}))}.bin"


def write_packs(path: Path, parts: Iterable[Packs], key: Mapping[str, Any]) -> None:
    """Write packs as they come; the file appears complete or not at all.

    Memory holds one part at a time. Ends of packs are buffered in an unnamed file next to
    `path`, eight bytes per pack.

    Args:
        path: Of the file; an existing one is replaced.
        parts: The packs, in their order (`pack_order`), at least one part.
        key: JSON values that state their inputs and settings.

    Raises:
        ValueError: there are no packs, or the key is longer than 3,500 bytes as JSON.
        OSError: the file cannot be written, for example on a full disk.
    """
    with atomic_writer(path) as stream, tempfile.TemporaryFile(dir=path.parent) as bounds:
        stream.write(bytes(_HEADER_BYTES))
        facts = _write_parts(stream, bounds, parts)
        if not facts["num_packs"]:
            message = f"{path}: there are no packs to write"
            raise ValueError(message)
        stream.write(bytes(-stream.tell() % 8))
        bounds.seek(0)
        shutil.copyfileobj(bounds, stream)
        text = _MAGIC + _as_json({"version": FORMAT_VERSION, "key": key, **facts})
        room = _HEADER_BYTES - _DIGEST_BYTES
        if len(text) > room:
            message = f"the key of a plan file is too long: {len(text)} bytes of {room}"
            raise ValueError(message)
        text = text.ljust(room)
        stream.seek(0)
        stream.write(text + xxhash.xxh3_64_hexdigest(text).encode())


def _write_parts(stream: IO[bytes], bounds: IO[bytes], parts: Iterable[Packs]) -> dict[str, Any]:
    """Append all items to one stream and all bounds to another; return their header fields."""
    items_sum, bounds_sum = xxhash.xxh3_64(), xxhash.xxh3_64()
    num_items = num_packs = 0
    item_kind = ""
    for number, part in enumerate(parts):
        item_kind = item_kind or f"<i{part.items.dtype.itemsize}"
        ends = part.bounds[1 if number else 0 :] + num_items
        _append(stream, items_sum, part.items.astype(item_kind, copy=False))
        _append(bounds, bounds_sum, ends.astype("<i8", copy=False))
        num_items, num_packs = num_items + len(part.items), num_packs + len(part)
    return {
        "num_items": num_items,
        "num_packs": num_packs,
        "item_type": item_kind,
        "items_xxh3": items_sum.hexdigest(),
        "bounds_xxh3": bounds_sum.hexdigest(),
    }


def open_packs(path: Path, key: Mapping[str, Any], *, verify: bool = True) -> Packs:
    """Memory-map packs that `write_packs` wrote.

    Args:
        path: Of the file.
        key: Key that it must have.
        verify: Compare items and bounds with their checksums, which reads all of them. Without
            it only the header and the file's size are checked: for all but one rank of a node.

    Raises:
        DamagedFileError: the file is of another kind, version or key, is truncated or was
            changed.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        facts = _read_header(path, stream.read(_HEADER_BYTES), key)
        size = stream.seek(0, 2)
    kind = np.dtype(facts["item_type"])
    end_of_items = _HEADER_BYTES + facts["num_items"] * kind.itemsize
    start_of_bounds = end_of_items + -end_of_items % 8
    expected = start_of_bounds + 8 * (facts["num_packs"] + 1)
    if size != expected:
        raise _damaged(path, f"it has {size:,} bytes, and its header says {expected:,}")
    content = np.memmap(path, mode="r", dtype=np.uint8)
    items = content[_HEADER_BYTES:end_of_items].view(kind)
    bounds = content[start_of_bounds:].view("<i8")
    if verify:
        for name, values in (("items", items), ("bounds", bounds)):
            checksum, data = xxhash.xxh3_64(), values.data.cast("B")
            for start in range(0, len(data), _CHECKED_BYTES):
                checksum.update(data[start : start + _CHECKED_BYTES])
            if checksum.hexdigest() != facts[f"{name}_xxh3"]:
                raise _damaged(path, f"its {name} do not match their checksum")
    return Packs(bounds=bounds, items=items)


def _read_header(path: Path, header: bytes, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a plan file that must have this key."""
    if not header.startswith(_MAGIC):
        raise _damaged(path, "it does not begin as a plan file does")
    text, digest = header[:-_DIGEST_BYTES], header[-_DIGEST_BYTES:]
    if len(header) < _HEADER_BYTES or xxhash.xxh3_64_hexdigest(text).encode() != digest:
        raise _damaged(path, "its header does not match its checksum")
    facts: dict[str, Any] = json.loads(text[len(_MAGIC) :])
    if facts["version"] != FORMAT_VERSION:
        raise _damaged(path, f"it has version {facts['version']}, and this is {FORMAT_VERSION}")
    expected = json.loads(_as_json(key))
    stored = facts["key"]
    if stored != expected:
        differences = ", ".join(
            f"{name} {stored.get(name)!r} instead of {expected.get(name)!r}"
            for name in sorted(stored.keys() | expected.keys())
            if stored.get(name) != expected.get(name)
        )
        raise _damaged(path, f"its packs were made with {differences}")
    return facts


def _as_json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, ensure_ascii=True).encode()


def _append(stream: IO[bytes], checksum: Any, values: np.ndarray) -> None:
    data = np.ascontiguousarray(values).data.cast("B")
    checksum.update(data)
    stream.write(data)


def _damaged(path: Path, reason: str) -> DamagedFileError:
    message = f"{path} cannot be used: {reason}. Remove it; packs are then computed again"
    return DamagedFileError(message)


# Packs of a whole epoch, from the index and a seed, stretch by stretch.
#
# Each stretch of the seeded order is packed separately. So memory is bounded whatever the size,
# several processes can share the work, and the packs do not depend on the number of processes.


STRETCH_SIZE = 1 << 18
"""Entries of the order that are packed together. Another size gives another plan: raise
`FORMAT_VERSION` with it."""


def pack_order(
    num_tokens: np.ndarray,
    num_images: np.ndarray,
    *,
    budget: PackBudget,
    strategy: str,
    words: Sequence[int],
    keep: np.ndarray | None = None,
    num_processes: int = 1,
) -> Iterator[Packs]:
    """Yield the packs of one order of the samples, stretch by stretch; `join_packs` joins them.

    Equal arguments give equal packs on every platform, whatever `num_processes`.

    Args:
        num_tokens: Integers [num_samples], image tokens included; may be memory-mapped.
        num_images: Integers [num_samples].
        budget: Budget of a pack.
        strategy: A name of `STRATEGIES`.
        words: Seed of the order (`make_permutation`), such as seed and epoch.
        keep: bool [num_samples]: samples to pack. None: all.
        num_processes: More than one starts processes, which end with the last stretch.

    Raises:
        OverBudgetError: samples that are kept exceed the budget.
        ValueError: some have no tokens, or no strategy has this name.
    """
    if strategy not in STRATEGIES:
        message = f"strategy {strategy!r}: one of {', '.join(STRATEGIES)} is needed"
        raise ValueError(message)
    if not len(num_tokens) == len(num_images) == len(num_tokens if keep is None else keep):
        message = "num_tokens, num_images and keep must have one entry a sample each"
        raise ValueError(message)
    check_sizes(num_tokens, num_images, budget, keep)
    stretches = _stretches(num_tokens, num_images, words, keep)
    jobs = ((strategy, budget, *stretch) for stretch in stretches)
    if num_processes == 1:
        return (pack_stretch(*job) for job in jobs)
    return _in_processes(jobs, num_processes)


def make_packs(
    num_tokens: np.ndarray,
    num_images: np.ndarray,
    *,
    budget: PackBudget,
    strategy: str,
    words: Sequence[int],
    keep: np.ndarray | None = None,
    num_processes: int = 1,
) -> Packs:
    """Return all packs of one order in memory; see `pack_order`."""
    parts = pack_order(
        num_tokens,
        num_images,
        budget=budget,
        strategy=strategy,
        words=words,
        keep=keep,
        num_processes=num_processes,
    )
    return join_packs(list(parts))


def pack_stretch(
    strategy: str,
    budget: PackBudget,
    numbers: np.ndarray,
    num_tokens: np.ndarray,
    num_images: np.ndarray,
) -> Packs:
    """Return the packs of one stretch.

    Args:
        strategy: A name of `STRATEGIES`.
        budget: Budget of a pack.
        numbers: Numbers of the samples in their order, int32 or int64 [stretch].
        num_tokens: Tokens of these samples, [stretch].
        num_images: Images of these samples, [stretch].
    """
    ends, places = STRATEGIES[strategy](num_tokens.tolist(), num_images.tolist(), budget)
    return Packs(
        bounds=np.array([0, *ends], dtype=np.int64),
        items=numbers[np.array(places, dtype=np.int64)],
    )


def _stretches(
    num_tokens: np.ndarray, num_images: np.ndarray, words: Sequence[int], keep: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield numbers, tokens and images of the samples in their order."""
    size = len(num_tokens)
    if not size:
        return
    permutation = make_permutation(size, words)
    for start in range(0, size, STRETCH_SIZE):
        numbers = permutation.slice(start, min(start + STRETCH_SIZE, size))
        if keep is not None:
            numbers = numbers[keep[numbers]]
        yield numbers.astype(item_type(size)), num_tokens[numbers], num_images[numbers]


def _in_processes(jobs: Iterator[tuple], num_processes: int) -> Iterator[Packs]:
    """Run `pack_stretch` on each job, in order; few jobs wait at a time."""
    waiting: deque[Future[Packs]] = deque()
    # Spawned: the caller may have threads, and a fork would copy their locks.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for job in jobs:
            waiting.append(pool.submit(pack_stretch, *job))
            if len(waiting) > num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@dataclass(frozen=True, kw_only=True, slots=True)
class Padding:
    """Token positions, and how many of them are empty."""

    num_packs: int
    num_tokens: int
    num_places: int
    """Tokens that the model computes, padding included."""
    least_num_packs: int
    """Lower bound for packs that are padded to the full; see `fewest_packs`."""
    max_tokens: int

    @property
    def share(self) -> float:
        """Share of positions that are padding."""
        return 1 - self.num_tokens / self.num_places

    @property
    def least_share(self) -> float:
        """Share for `least_num_packs` packs, each padded to `max_tokens`."""
        return 1 - self.num_tokens / (self.least_num_packs * self.max_tokens)


def padding(
    packs: Packs,
    num_tokens: np.ndarray,
    num_images: np.ndarray,
    *,
    budget: PackBudget,
    batch_size: int | None = None,
) -> Padding:
    """Return the padding of packs filled up to `max_tokens`, or to the longest of their batch.

    Args:
        packs: One or more.
        num_tokens: Integers [num_samples] of the index.
        num_images: Integers [num_samples].
        budget: Budget of a pack.
        batch_size: Packs that are padded together to the longest of them, as for `none`; the
            last batch may be short. None: each is padded to `budget.max_tokens`.
    """
    loads = sums_of(packs, num_tokens)
    if batch_size is None:
        num_places = len(packs) * budget.max_tokens
    else:
        starts = np.arange(0, len(loads), batch_size)
        sizes = np.diff(np.append(starts, len(loads)))
        num_places = int((np.maximum.reduceat(loads, starts) * sizes).sum())
    return Padding(
        num_packs=len(packs),
        num_tokens=int(loads.sum()),
        num_places=num_places,
        least_num_packs=fewest_packs(num_tokens[packs.items], num_images[packs.items], budget),
        max_tokens=budget.max_tokens,
    )


def sums_of(packs: Packs, values: np.ndarray) -> np.ndarray:
    """Return the sum of integers over the samples of each pack, int64 [num_packs].

    Args:
        packs: One or more, none empty.
        values: Integers [num_samples], such as `num_tokens` or `num_images` of the index.
    """
    return np.add.reduceat(values[packs.items].astype(np.int64), packs.bounds[:-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Delay of samples against their order; 0 for those that come earlier."""

    max_packs: int
    """Packs between a sample's pack and the one at its position in the order."""
    max_samples: int
    """Positions between a sample's in its packs and in the order."""
    mean_samples: float


def waits(packs: Packs, order: np.ndarray) -> Waits:
    """Return how long samples waited.

    Args:
        packs: One or more.
        order: The samples in the order in which the strategy saw them, [num_items].
    """
    num_items = len(order)
    place_in_order = np.empty(int(packs.items.max()) + 1, dtype=np.int64)
    place_in_order[order] = np.arange(num_items)
    places = place_in_order[packs.items]
    pack_of_place = np.repeat(np.arange(len(packs)), np.diff(packs.bounds))
    late_samples = np.maximum(0, np.arange(num_items) - places)
    late_packs = np.maximum(0, pack_of_place - pack_of_place[places])
    return Waits(
        max_packs=int(late_packs.max()),
        max_samples=int(late_samples.max()),
        mean_samples=float(late_samples.mean()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkModel:
    """Cost beyond the language model's layers, where each token costs one unit."""

    per_image: float
    """Token equivalents of one image in the vision tower."""
    per_square_token: float
    """Token equivalents of attention, per squared length of each sample."""


def work_model(
    *,
    hidden_size: int,
    num_patches: int = 0,
    vision_parameters: float = 0,
    language_parameters: float = 1,
) -> WorkModel:
    """Return the work of a model from its sizes.

    Linear layers take 2 floating-point operations per parameter and token (Kaplan et al. 2020,
    arXiv:2001.08361, section 2.1). So an image costs `num_patches * vision_parameters /
    language_parameters` tokens, without attention among its patches. A layer has about 12 *
    hidden_size**2 parameters, so 24 * hidden_size**2 operations per token; attending to T
    tokens takes 4 * T * hidden_size, which is T / (6 * hidden_size) of that. With causal
    attention a token of a sample of L tokens sees L / 2 on average: the sample's attention
    costs L**2 / (12 * hidden_size) tokens. Forward and backward have the same ratio.

    Args:
        hidden_size: Of the language model; if its layers do not have about 12 *
            hidden_size**2 parameters, create `WorkModel` with another coefficient.
        num_patches: Patches that the vision tower computes for an image, not the tokens that
            remain.
        vision_parameters: Of the vision tower.
        language_parameters: Of the language model's layers.
    """
    return WorkModel(
        per_image=num_patches * vision_parameters / language_parameters,
        per_square_token=1 / (12 * hidden_size),
    )


def pack_work(
    packs: Packs, num_tokens: np.ndarray, num_images: np.ndarray, model: WorkModel
) -> np.ndarray:
    """Return the work of each pack in token equivalents, float64 [num_packs].

    Samples of a pack do not see each other: attention costs the sum of their squares. Sums are
    of integers, so the result is the same on every platform.

    Args:
        packs: One or more.
        num_tokens: Integers [num_samples] of the index.
        num_images: Integers [num_samples].
        model: Costs of images and attention.
    """
    tokens = sums_of(packs, num_tokens)
    images = sums_of(packs, num_images)
    squares = np.add.reduceat(np.square(num_tokens[packs.items], dtype=np.int64), packs.bounds[:-1])
    return tokens + model.per_image * images + model.per_square_token * squares

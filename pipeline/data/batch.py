"""Samples to one batch of tensors, with one or several samples in a row.

Samples of a row never see each other: positions restart at 0, attention kernels get the bounds
of all segments, and no sample's first token is a target, because the sample before would
predict it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from torch.cuda import _pin_memory_utils

from pipeline.data.dataset import Gathered, ImageRule, ImageSize, gather_samples
from pipeline.data.format import IGNORED_LABEL, Sample
from pipeline.timing.thread_clock import NOT_TIMED, ThreadTimes
from slurm_jobs.shared.errors import StageConfigError, StageError

# Pool of memory for the pixels of batches, reused once it has no reference.
#
# Fresh memory costs a page fault for every 4 KiB, which is slower than the copy into it, and
# pinning it costs even more. So each buffer returns to the pool when the last array or tensor
# over it is gone. When batches grow, the pool keeps no more buffers than were ever in use at
# once.


_SMALLEST_BYTES = 1 << 20
_MOST_WASTE = 4
"""A request for less than 1/4 of a buffer does not get it."""


class BufferPool:
    """Pool of byte arrays; may be used from several threads.

    With `pin_memory` a GPU can copy from them asynchronously. Keep a reference to the array
    until such a copy is done: the pool sees only Python's references.
    """

    def __init__(self, *, pin_memory: bool) -> None:
        self._pin_memory = pin_memory
        self._free: deque[torch.Tensor] = deque()
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> np.ndarray:
        """Return uninitialised uint8 [num_bytes].

        Takes the smallest free buffer that is large enough and not much too large. If there is
        none, the smallest free buffer is dropped to make room for a new one; otherwise growing
        batches would leave one buffer of each size behind.
        """
        most = max(_MOST_WASTE * num_bytes, _SMALLEST_BYTES)
        with self._lock:  # other threads append on the right, without a lock
            free = sorted((self._free.popleft() for _ in range(len(self._free))), key=len)
            fitting = (n for n, buffer in enumerate(free) if num_bytes <= len(buffer) <= most)
            number = next(fitting, None)
            buffer = None if number is None else free.pop(number)
            if buffer is None and free and len(free[0]) < num_bytes:
                del free[0]
            self._free.extend(free)
        if buffer is None:
            # An eighth of the next smaller power of two: similar batches share buffers.
            step = max(_SMALLEST_BYTES, 1 << max(0, num_bytes.bit_length() - 4))
            num_steps = max(1, -(-num_bytes // step))
            buffer = _allocate(num_steps * step, pin_memory=self._pin_memory)
        return np.asarray(_Lease(self._free, buffer, num_bytes))

    @property
    def num_free(self) -> int:
        """Buffers without a reference."""
        return len(self._free)


def _allocate(num_bytes: int, *, pin_memory: bool) -> torch.Tensor:
    """Return uninitialised uint8 [num_bytes], in huge pages where the kernel has them.

    A copy into pages of 4 KiB takes a sixth longer. The memory is allocated here and then
    pinned, because torch rounds pinned allocations up to a power of two. The calling thread
    must have the GPU as its current device: see `make_pool`.
    """
    mapped = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # kernel without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    buffer = torch.frombuffer(mapped, dtype=torch.uint8)  # keeps it mapped
    if pin_memory:
        # After a fork this process would write to new pages, and the GPU would read the old ones.
        mapped.madvise(mmap.MADV_DONTFORK)
        _pin_memory_utils.pin_memory(buffer.data_ptr(), num_bytes)
        unpin = weakref.finalize(buffer, _pin_memory_utils.unpin_memory, buffer.data_ptr())
        unpin.atexit = False  # the CUDA context may be gone already
    return buffer


class _Lease:
    """Base object of an array over a buffer; its finalizer returns the buffer to the pool."""

    __slots__ = ("__array_interface__", "_buffer", "_free")

    def __init__(self, free: deque[torch.Tensor], buffer: torch.Tensor, num_bytes: int) -> None:
        self._free, self._buffer = free, buffer
        self.__array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (buffer.data_ptr(), False),
            "version": 3,
        }

    def __del__(self) -> None:
        # No lock: this may run in any thread at any allocation. deque.append is atomic.
        self._free.append(self._buffer)


# Levels of samples with chained targets: the level of each learned token.
#
# A sample with three levels is a conversation with three assistant turns in one sequence of
# tokens. With causal attention level 2 reads level 1 and level 3 reads both, and they read the
# text of the manifest: all levels of all samples are learned in one forward pass. So a level is
# the number of a run of learned tokens in its sample.


ClassReader = Callable[[tuple[int, ...]], int]
"""Maps the learned tokens of an answer to its class.

Raises:
    ValueError: it is none of the classes.
"""


class UnfitSampleError(ValueError):
    """Sample that does not fit the levels; a retry would read the same sample."""


def refuse_batch(where: str, error: ValueError) -> NoReturn:
    """Raise the error of a batch that cannot be assembled; `where` names its samples.

    Raises:
        StageConfigError: a sample does not fit the levels.
        StageError: for any other reason.
    """
    if isinstance(error, StageConfigError):
        raise error
    if isinstance(error, UnfitSampleError):
        message = f"{where}: {error}; run `preprocess` again after fixing the manifest"
        raise StageConfigError(message) from None
    message = f"{where}: {error}"
    raise StageError(message) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelRules:
    """Requirements for every sample."""

    names: tuple[str, ...]
    readers: Mapping[int, ClassReader]
    """Class readers by number of level, for levels that a head classifies."""


ClassPlaces: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""int64 [num_samples] both: positions in the rows before the answers, and the answers' classes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """Targets of a microbatch; positions count through its concatenated rows."""

    places: torch.Tensor
    """int64 [num_learned]: positions whose next token is a target."""
    targets: torch.Tensor
    """int64 [num_learned]: those next tokens."""
    levels: torch.Tensor | None
    """int64 [num_learned]: the level of each; None without levels."""
    classes: Mapping[int, ClassPlaces]
    """Targets by level that a classifier head predicts; the three fields above do not contain them.
    """
    num_by_level: tuple[int, ...]
    """Learned tokens, or classified answers, of each level; one number without levels."""
    num_tokens: int
    """Learned tokens, including those of classified answers."""


def find_learned(
    labels: np.ndarray,
    bounds: np.ndarray,
    keys: Sequence[str],
    rules: LevelRules | None,
    tensor: Callable[[np.ndarray], torch.Tensor],
) -> Learned:
    """Return the targets of rows whose first tokens are never learned.

    Args:
        labels: int64 [num_rows, length], -100 where nothing is learned.
        bounds: int32 [num_segments + 1] of samples and padding.
        keys: Keys of the samples, in their order.
        rules: Rules of levels, if any.
        tensor: Converts an array to a tensor.

    Raises:
        UnfitSampleError: a sample has more or fewer levels, or an answer is not one of its
            classes.
    """
    flat = labels.reshape(-1)
    learned = np.flatnonzero(flat != IGNORED_LABEL)
    targets = flat[learned]
    if rules is None:
        return Learned(
            places=tensor(learned - 1),
            targets=tensor(targets),
            levels=None,
            classes={},
            num_by_level=(len(learned),),
            num_tokens=len(learned),
        )
    segments = np.searchsorted(bounds, learned, side="right")
    begins = np.ones(len(learned), dtype=bool)
    begins[1:] = (np.diff(learned) != 1) | (np.diff(segments) != 0)
    starts = np.flatnonzero(begins)
    _check_num_levels(segments[starts], bounds, keys, rules)
    num_levels = len(rules.names)
    levels = (np.cumsum(begins) - 1) % num_levels  # every sample has one run per level
    is_text = ~np.isin(levels, list(rules.readers))
    counts = np.bincount(levels[is_text], minlength=num_levels)
    answers = np.split(targets, starts[1:])
    classes: dict[int, ClassPlaces] = {}
    for level, read in rules.readers.items():
        numbers = []
        for answer, key in zip(answers[level::num_levels], keys, strict=True):
            try:
                numbers.append(read(tuple(answer.tolist())))
            except ValueError as error:
                message = (
                    f"sample {key}, level {rules.names[level]}: {error}; add it to "
                    f"`levels.{level}.classes`, or fix that row of the manifest"
                )
                raise UnfitSampleError(message) from None
        counts[level] = len(numbers)
        places = learned[starts[level::num_levels]] - 1
        classes[level] = (tensor(places), tensor(np.array(numbers, dtype=np.int64)))
    return Learned(
        places=tensor(learned[is_text] - 1),
        targets=tensor(targets[is_text]),
        levels=tensor(levels[is_text]),
        classes=classes,
        num_by_level=tuple(counts.tolist()),
        num_tokens=len(learned),
    )


def _check_num_levels(
    segments: np.ndarray, bounds: np.ndarray, keys: Sequence[str], rules: LevelRules
) -> None:
    """Compare the number of runs of each sample with the number of levels."""
    counts = np.bincount(segments, minlength=len(bounds))
    num_runs = counts[counts > 0]
    if len(num_runs) == len(keys) and (num_runs == len(rules.names)).all():
        return
    # Padding has no runs and is between samples; a sample without runs looks the same.
    wrong = np.flatnonzero(num_runs != len(rules.names))
    sample = f"sample {keys[wrong[0]]}" if len(num_runs) == len(keys) else f"a sample of {keys}"
    number = num_runs[wrong[0]] if len(wrong) else 0
    message = (
        f"{sample} has {number} learned answers, but there are {len(rules.names)} levels "
        f"({', '.join(rules.names)}); every sample needs one complete assistant turn per level: "
        "preprocess with `too_long: drop`"
    )
    raise UnfitSampleError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Microbatch of one rank, on the host.

    The memory of `pixels` is reused as soon as it has no reference: keep the batch until the
    device has copied it.
    """

    input_ids: torch.Tensor
    """int64 [num_rows, length], padded on the right."""
    labels: torch.Tensor
    """int64 [num_rows, length], -100 where nothing is learned; not shifted."""
    position_ids: torch.Tensor
    """int64 [num_rows, length], from 0 in every sample and in the padding of a row; or the
    result of `PositionMaker`."""
    segment_bounds: torch.Tensor
    """int32 [num_segments + 1]: bounds of the segments in the concatenated rows. A segment is a
    sample, or the padding of a row."""
    image_places: torch.Tensor | None
    """int64 [num_image_tokens]: positions of the image tokens in the concatenated rows; None
    without an image."""
    learned: Learned
    """Targets of the loss."""
    pixels: torch.Tensor
    """uint8 [num_pixels, 3] of all images, concatenated in the order of the image tokens."""
    image_sizes: torch.Tensor
    """int64 [num_images, 2]: height and width of each."""
    original_sizes: torch.Tensor | None
    """int64 [num_pictures, 2]: height and width of each picture before preprocessing; None
    unless the model needs them. A picture that was cut into tiles is several images."""
    keys: tuple[str, ...]
    epoch: int
    """Epoch of the first row of the global batch."""
    is_packed: bool
    """True if any row holds more than one sample."""
    num_samples: int
    num_tokens: int
    """Tokens without padding, image tokens included."""
    num_padding_tokens: int
    num_supervised_tokens: int
    num_images: int
    loading: ThreadTimes = NOT_TIMED
    """Time of the loader's threads for this batch."""
    reading: ThreadTimes = NOT_TIMED
    """Share of `loading` of a thread that reads for all others; not timed where each thread reads.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRows:
    """Text side of a batch; all arrays but the last are [num_rows, length]."""

    input_ids: np.ndarray
    """int64."""
    labels: np.ndarray
    """int64."""
    position_ids: np.ndarray
    """int64."""
    segment_bounds: np.ndarray
    """int32 [num_segments + 1]."""
    is_packed: bool
    """True if any row holds more than one sample."""


PositionMaker = Callable[[TokenRows, Sequence[ImageSize]], np.ndarray]
"""Maps the rows and the height and width of each image to int64 [.., num_rows, length]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelNeeds:
    """Requirements of a model for its batches beyond the default."""

    make_positions: PositionMaker | None = None
    """None: positions count the tokens of each sample."""
    original_sizes: bool = False
    """True if it needs the sizes of pictures before preprocessing."""
    levels: LevelRules | None = None
    """Rules for samples with chained targets."""


def collate(
    rows: Sequence[Sequence[Sample]],
    *,
    rule: ImageRule,
    needs: ModelNeeds = ModelNeeds(),
    **settings: Any,
) -> Batch:
    """Assemble the samples of each row (see `assemble`); no row is empty.

    Raises:
        ValueError: an image does not fit the rule.
    """
    samples = itertools.chain.from_iterable(rows)
    gathered = gather_samples(samples, rule, with_original_sizes=needs.original_sizes)
    return assemble(gathered, [len(row) for row in rows], needs=needs, **settings)


def assemble(
    gathered: Gathered,
    row_sizes: Sequence[int],
    *,
    image_token_id: int,
    pad_token_id: int,
    epoch: int,
    buffers: BufferPool,
    length: int | None = None,
    needs: ModelNeeds = ModelNeeds(),
    pin_memory: bool = False,
) -> Batch:
    """Concatenate the samples of each row, pad the rows, and join the images.

    `row_sizes` counts the samples of each row, at least one; `length` None pads to the longest
    row; `pin_memory` returns pinned tensors, which a GPU copies asynchronously.
    """
    rows = lay_out_tokens(gathered, row_sizes, pad_token_id=pad_token_id, length=length)
    position_ids = rows.position_ids
    if needs.make_positions is not None:
        position_ids = needs.make_positions(rows, gathered.image_sizes)
    tensor = _pinned if pin_memory else torch.from_numpy
    learned = find_learned(rows.labels, rows.segment_bounds, gathered.keys, needs.levels, tensor)
    num_tokens = sum(map(len, gathered.input_ids))
    image_places = np.flatnonzero(rows.input_ids == image_token_id) if gathered.images else None
    ends = list(itertools.accumulate(map(len, gathered.images), initial=0))
    pixels = buffers.take(ends[-1])  # pinned, if `buffers` pins
    for image, (start, end) in zip(gathered.images, itertools.pairwise(ends), strict=True):
        pixels[start:end] = image
    return Batch(
        input_ids=tensor(rows.input_ids),
        labels=torch.from_numpy(rows.labels),  # for the host only
        position_ids=tensor(position_ids),
        segment_bounds=tensor(rows.segment_bounds),
        image_places=None if image_places is None else tensor(image_places),
        learned=learned,
        pixels=torch.from_numpy(pixels.reshape(-1, 3)),
        image_sizes=_sizes(gathered.image_sizes),
        original_sizes=None if gathered.original_sizes is None else _sizes(gathered.original_sizes),
        keys=tuple(gathered.keys),
        epoch=epoch,
        is_packed=rows.is_packed,
        num_samples=len(gathered.keys),
        num_tokens=num_tokens,
        num_padding_tokens=rows.input_ids.size - num_tokens,
        num_supervised_tokens=learned.num_tokens,
        num_images=len(gathered.images),
    )


def _sizes(sizes: Sequence[ImageSize]) -> torch.Tensor:
    return torch.tensor(sizes, dtype=torch.int64).reshape(-1, 2)


def _pinned(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).pin_memory()


def lay_out_tokens(
    gathered: Gathered, row_sizes: Sequence[int], *, pad_token_id: int, length: int | None = None
) -> TokenRows:
    """Lay out token ids, labels, positions and segments; rows are padded on the right.

    Rows of one sample need no mask: with causal attention no real token sees the padding after
    it.
    """
    sizes = [len(ids) for ids in gathered.input_ids]
    lasts = list(itertools.accumulate(row_sizes))
    longest = max(sum(sizes[start:last]) for start, last in itertools.pairwise([0, *lasts]))
    assert length is None or longest <= length
    width = longest if length is None else length
    num_places = len(row_sizes) * width
    input_ids = np.full(num_places, pad_token_id, dtype=np.int64)
    labels = np.full(num_places, IGNORED_LABEL, dtype=np.int64)
    position_ids = np.empty(num_places, dtype=np.int64)
    from_zero = np.arange(width)
    bounds = [0]
    sample = 0
    for last, row_end in zip(lasts, range(width, num_places + 1, width), strict=True):
        start = row_end - width
        while sample < last:
            size = sizes[sample]
            end = start + size
            input_ids[start:end] = gathered.input_ids[sample]
            labels[start + 1 : end] = gathered.labels[sample][1:]
            position_ids[start:end] = from_zero[:size]
            bounds.append(end)
            start = end
            sample += 1
        if start < row_end:
            position_ids[start:row_end] = from_zero[: row_end - start]
            bounds.append(row_end)
    shape = (len(row_sizes), width)
    return TokenRows(
        input_ids=input_ids.reshape(shape),
        labels=labels.reshape(shape),
        position_ids=position_ids.reshape(shape),
        segment_bounds=np.asarray(bounds, dtype=np.int32),
        is_packed=len(sizes) > len(row_sizes),
    )

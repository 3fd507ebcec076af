"""`reader: webdataset`: shards streamed through the webdataset library, from files or URLs.

For shards without random access, and for users who want the library's pipeline. Its guarantees
are weaker than those of the index. Each rank reads its share of the shards repeatedly, so a
sample comes once in each pass of its rank, not once in a global epoch. Order and content of
batches depend on the number of ranks. Samples are not compared with checksums. A resume starts
a new pass at another place instead of continuing. Ranks stay in step, because no rank's stream
ends.
"""

from __future__ import annotations

import dataclasses
import json
import random
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import xxhash

from pipeline.data.augmentation import Augmentation
from pipeline.data.batch import Batch, ModelNeeds, collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.batches.learned_targets import refuse_batch
from pipeline.data.dataset import ShardedDataset
from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.sample_members import (
    IMAGE_PREFIX,
    META_SUFFIX,
    TOKENS_SUFFIX,
    Sample,
    decode_stored_image,
    view_npy,
)
from pipeline.data.gathered import image_rule
from pipeline.data.order import BatchLayout
from pipeline.data.prefetch import Prefetcher, make_pool
from pipeline.data.shard_addresses import address_problem
from pipeline.timing.thread_clock import ThreadClock, ThreadTimes, add_up
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.records.heartbeat import beat

_STREAM_WORD = 3
"""Separates these seeds from those of the order and of augmentation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardStream:
    """Endless stream of the samples of one rank: pass after pass over its share of the shards."""

    urls: tuple[str, ...]
    """Shards of all ranks."""
    seed: int
    rank: int
    num_ranks: int
    shuffle_buffer: int
    """Samples from which the next one is drawn; 1 keeps the order of the shards."""
    start_step: int
    locate: Callable[[str], str] = str
    """Returns the path to read a shard from; called when a pass begins."""

    def __post_init__(self) -> None:
        if len(self.urls) < self.num_ranks:
            message = (
                f"`reader: webdataset` gives each rank shards of its own: {len(self.urls)} shards "
                f"are too few for {self.num_ranks} ranks; set num_shards of consolidate higher, "
                f"or use `reader: index`"
            )
            raise StageConfigError(message)

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the pass, from 0, and the members of a sample as webdataset's dict."""
        pass_index = 0
        while True:
            for sample in self._one_pass(pass_index):
                yield pass_index, sample
            pass_index += 1

    def shards_of_pass(self, pass_index: int) -> list[str]:
        """Return this rank's shards, in the order of one pass."""
        shards = self.urls[self.rank :: self.num_ranks]
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self._words(pass_index))))
        return [self.locate(shards[place]) for place in draw.permutation(len(shards))]

    def _words(self, pass_index: int) -> list[int]:
        return [_STREAM_WORD, self.seed, self.start_step, pass_index, self.rank]

    def _one_pass(self, pass_index: int) -> Iterator[Mapping[str, Any]]:
        import webdataset as wds

        shards = wds.WebDataset(
            self.shards_of_pass(pass_index),
            shardshuffle=False,
            nodesplitter=None,
            workersplitter=None,
            seed=0,
        )
        shards = shards.map(_noted)  # before the buffer, which reads many samples at once
        draw = random.Random(repr(self._words(pass_index)))  # noqa: S311 - an order, no secret
        return iter(shards.shuffle(self.shuffle_buffer, initial=self.shuffle_buffer, rng=draw))


def _noted(members: Mapping[str, Any]) -> Mapping[str, Any]:
    beat()  # training may wait for a step whose samples come slowly
    return members


_Read: TypeAlias = tuple[list[tuple[int, Mapping[str, Any]]], ThreadTimes]
"""Samples of a microbatch, each with its pass, and the time of reading them."""


class StreamReader(Prefetcher):
    """Steps of one rank, read from a `ShardStream`; each is a list of microbatches.

    A shard that cannot be read raises `StageError` in the step it belongs to.
    """

    def __init__(
        self,
        info: DatasetInfo,
        stream: ShardStream,
        layout: BatchLayout,
        *,
        needs: ModelNeeds = ModelNeeds(),
        augment: Augmentation | None = None,
        gpu: torch.device | None = None,
        num_threads: int = 2,
        prefetch: int = 4,
        max_tokens: int | None = None,
    ) -> None:
        """Start to read `prefetch` steps ahead; one thread reads shards, `num_threads` decode.

        A sample with more than `max_tokens` tokens is an error: the model has no positions for
        it.
        """
        self._max_tokens = max_tokens
        self._info, self._layout, self._augment = info, layout, augment
        self._rule, self._needs = image_rule(info), needs
        self._samples = iter(stream)
        self._buffers = BufferPool(pin_memory=gpu is not None)
        self._pin_memory = gpu is not None
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="batch-shards")
        super().__init__(make_pool(num_threads, gpu), prefetch)

    def close(self) -> None:
        """Stop the threads; batches read ahead are dropped."""
        super().close()
        self._reading.shutdown(cancel_futures=True)

    def _submit_step(self) -> list[Future[Batch]]:
        num_rows = self._layout.rank_batch_size // self._layout.num_microbatches
        return [
            self._pool.submit(self._assemble, self._reading.submit(self._read, num_rows))
            for _ in range(self._layout.num_microbatches)
        ]

    def _read(self, num_rows: int) -> _Read:
        clock = ThreadClock()
        try:
            rows = [next(self._samples) for _ in range(num_rows)]
        except (OSError, ValueError, EOFError, tarfile.TarError) as error:
            message = address_problem(error) or f"a shard of the stream cannot be read: {error}"
            raise StageError(message) from error
        return rows, clock.read()

    def _assemble(self, reading: Future[_Read]) -> Batch:
        read, times = reading.result()
        clock = ThreadClock()
        samples = [self._sample(number, members) for number, members in read]
        try:
            batch = collate(
                [[sample] for sample in samples],
                rule=self._rule,
                needs=self._needs,
                image_token_id=self._info.image_token_id,
                pad_token_id=self._info.pad_token_id,
                epoch=read[0][0],
                buffers=self._buffers,
                pin_memory=self._pin_memory,
            )
        except ValueError as error:
            shards = sorted({members["__url__"] for _, members in read})
            refuse_batch(", ".join(shards), error)
        return dataclasses.replace(batch, loading=add_up([times, clock.read()]), reading=times)

    def _sample(self, pass_index: int, members: Mapping[str, Any]) -> Sample:
        try:
            sample = sample_from_members(members)
            self._check(sample)
        except (ValueError, OSError) as error:
            message = f"{members['__url__']}: sample {members['__key__']}: {error}"
            raise StageError(message) from error
        except (KeyError, TypeError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            message = (
                f"{members['__url__']}: sample {members['__key__']}: {META_SUFFIX} is not what "
                f"`preprocess` writes ({what}); stream shards of `consolidate`"
            )
            raise StageError(message) from error
        if self._augment is None:
            return sample
        return self._augment(sample, number=number_of(sample.key), epoch=pass_index)

    def _check(self, sample: Sample) -> None:
        """Compare the images with the data set's settings, because checksums are not compared.

        Raises:
            ValueError: it is too long, an image has another size, or the number of images or
                image tokens is not as recorded.
        """
        self._rule.check(sample)
        if self._max_tokens is not None and len(sample.input_ids) > self._max_tokens:
            message = (
                f"{len(sample.input_ids):,} tokens, but the language model has "
                f"{self._max_tokens:,} positions; preprocess with max_tokens: {self._max_tokens}"
            )
            raise ValueError(message)
        num_tokens = int(np.count_nonzero(sample.input_ids == self._info.image_token_id))
        expected = num_image_tokens(sample, self._info)
        if expected is None:
            noted = sum(len(sizes) for sizes in sample.meta["stored_sizes"])
            if noted != len(sample.images):
                message = f"{len(sample.images)} images, and {noted} noted in {META_SUFFIX}"
                raise ValueError(message)
        elif num_tokens != expected:
            message = (
                f"{len(sample.images)} images and {num_tokens} image tokens, expected "
                f"{expected}; the shard is truncated, or belongs to a data set with other "
                "settings"
            )
            raise ValueError(message)


def num_image_tokens(sample: Sample, info: DatasetInfo) -> int | None:
    """Return the image tokens that a sample must have; None if its images do not determine it."""
    if info.num_image_tokens is not None:
        return len(sample.images) * info.num_image_tokens
    if info.patch_size is None or info.merge_size is None:
        return None  # tiles: some of them are partly black
    side = info.patch_size * info.merge_size
    sizes = (image.shape[:2] for image in sample.images)
    return sum((height // side) * (width // side) for height, width in sizes)


def number_of(key: str) -> int:
    """Return a number for a sample of which a stream knows only the key."""
    if key.isascii() and key.isdecimal():
        return int(key)
    return xxhash.xxh3_64_intdigest(key.encode())


def sample_from_members(members: Mapping[str, Any]) -> Sample:
    """Return a sample from webdataset's dict: `__key__`, and bytes by suffix.

    Raises:
        ValueError, OSError: a member is missing or damaged.
    """
    for suffix in (TOKENS_SUFFIX, META_SUFFIX):
        if suffix not in members:
            message = f"it has no member {suffix}"
            raise ValueError(message)
    tokens = view_npy(memoryview(members[TOKENS_SUFFIX]))
    if tokens.ndim != 2 or len(tokens) != 2 or not tokens.shape[1]:
        message = f"{TOKENS_SUFFIX} has the shape {tokens.shape}, expected (2, num_tokens)"
        raise ValueError(message)
    names = [name for name in members if name.startswith(IMAGE_PREFIX)]
    in_order = sorted(names, key=lambda name: int(name[len(IMAGE_PREFIX) :].partition(".")[0]))
    return Sample(
        key=members["__key__"],
        input_ids=tokens[0],
        labels=tokens[1],
        images=tuple(decode_stored_image(memoryview(members[name]), name) for name in in_order),
        meta=json.loads(members[META_SUFFIX]),
    )


def expand_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """Expand `{000..099}` in URLs or paths of shards.

    Raises:
        StageConfigError: a URL would run a command, has characters that a shell might
            interpret, or has an unclosed brace.
    """
    from webdataset.shardlists import expand_urls as expand

    shards: list[str] = []
    for url in urls:
        try:
            expanded = expand(url)
        except ValueError as error:
            message = f"stream.urls {url!r}: {error}; write numbers as {{000..099}}"
            raise StageConfigError(message) from error
        for shard in expanded:  # `::` and braces may hide the real start of a URL
            is_command = shard.lstrip().startswith("pipe:")
            if not shard or is_command or any(sign in shard for sign in "'\"`$;|&<>\\\n"):
                message = (
                    f"stream.urls {url!r}: commands and characters that a shell reads are refused; "
                    f"give paths, or http, https or s3 addresses"
                )
                raise StageConfigError(message)
        shards += expanded
    return tuple(shards)


def own_shards(dataset: ShardedDataset) -> tuple[tuple[str, ...], Callable[[str], str]]:
    """Return the shards of a data set and their locator (`ShardStream.locate`).

    A path is on this node's local disk once the shard is complete there. A shard that is
    missing or has another size is a StageError: a stream would not notice a tar that ends
    between two members.
    """
    numbers = {shard.name: number for number, shard in enumerate(dataset.info.shards)}
    return tuple(numbers), lambda name: str(dataset.files.path(numbers[name]))

"""Stage's side of `slurm-jobs samples`: decoded samples and an audit of labels and images."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from io import FileIO
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from pipeline.data.format import (
    BLOCK,
    IGNORED_LABEL,
    IMAGE_PREFIX,
    META_SUFFIX,
    TOKENS_SUFFIX,
    DatasetInfo,
    decode_stored_image,
    read_dataset_info,
    scan_members,
    view_npy,
)
from pipeline.data.index import INDEX_TYPES, DatasetIndex, format_key, index_statistics, open_index
from pipeline.preprocess.tokenizer import load_tokenizer, named_tokens
from slurm_jobs.shared.dataset_folder import INDEX_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.shared.processors.folder import read_processor
from slurm_jobs.shared.processors.image_plans import ImageRules
from slurm_jobs.shared.regular_files import descriptor_of

# Samples read from their shards: the tokens of all, and everything of a few.
#
# A sample's members begin with its tokens and `meta.json`. To check only these, the start of each
# sample is read, however large its images are.


BROKEN = (ValueError, TypeError, KeyError, SyntaxError, ArithmeticError, RecursionError)
"""Errors from parsing bytes that are not a valid sample."""

_META_BYTES = 2048
"""Usual size of `meta.json`; if it is larger, the whole sample is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSample:
    """Sample with encoded images."""

    tokens: np.ndarray
    """int32 [2, num_tokens]: token ids and labels."""
    meta: Mapping[str, Any]
    images: tuple[tuple[str, memoryview], ...]
    """Suffix (`image0.png`) and bytes of each; empty if only the head was read."""


def read_head(file: int, index: DatasetIndex, number: int) -> RawSample:
    """Read tokens and `meta.json` of sample `number` from its open shard.

    Raises:
        BROKEN: there is no valid sample.
        OSError: the shard cannot be read.
    """
    num_bytes = int(index.num_bytes[number])
    head = 3 * BLOCK + 8 * int(index.num_tokens[number]) + BLOCK + _META_BYTES
    if head < num_bytes:
        data = os.pread(file, head, int(index.offset[number]))
        try:
            return parse(memoryview(data))
        except BROKEN:  # most likely truncated by reading only the head
            pass
    return read_whole(file, index, number)


def read_whole(file: int, index: DatasetIndex, number: int) -> RawSample:
    """Read all of sample `number`; raises like `read_head`."""
    num_bytes = int(index.num_bytes[number])
    data = os.pread(file, max(0, num_bytes), max(0, int(index.offset[number])))
    if len(data) < num_bytes:
        message = f"cut short: {len(data)} of {num_bytes} bytes"
        raise ValueError(message)
    return parse(memoryview(data), wants_images=True)


def parse(data: memoryview, *, wants_images: bool = False) -> RawSample:
    """Parse the members at the start of `data`; without images, up to tokens and meta.

    Raises:
        BROKEN: a member is damaged or missing.
    """
    tokens, meta, images = None, None, []
    for member in scan_members(data):
        suffix = member.name.partition(".")[2]
        content = data[member.start : member.start + member.num_bytes]
        if suffix == TOKENS_SUFFIX:
            tokens = view_npy(content)
        elif suffix == META_SUFFIX:
            meta = json.loads(bytes(content))
        elif suffix.startswith(IMAGE_PREFIX):
            images.append((suffix, content))
        if tokens is not None and meta is not None and not wants_images:
            break
    if tokens is None or not isinstance(meta, dict):
        message = f"it has no {TOKENS_SUFFIX if tokens is None else META_SUFFIX}"
        raise ValueError(message)
    if tokens.dtype != np.int32 or tokens.ndim != 2 or len(tokens) != 2 or not tokens.shape[1]:
        message = (
            f"{TOKENS_SUFFIX} is {tokens.dtype} {list(tokens.shape)}, no int32 [2, num_tokens]"
        )
        raise ValueError(message)
    return RawSample(tokens=tokens, meta=meta, images=tuple(images))


# Pure rules for the tokens, labels and images of one sample.
#
# `verify` checks checksums and counts; these rules check that the content makes sense.


Kind = Literal[
    "nothing_supervised",
    "image_token_supervised",
    "first_token_supervised",
    "label_differs",
    "unknown_token",
    "image_tokens",
    "num_images",
    "unreadable",
]

NOTHING_SUPERVISED = "no token is supervised: nothing is learned from it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Facts that the samples of a data set are checked against."""

    info: DatasetInfo
    is_token: np.ndarray
    """bool [largest token id + 1]: True if the tokenizer has a token of this id."""
    images: ImageRules
    """Image rules of the data set's processor."""


def find(
    rules: Rules, tokens: np.ndarray, meta: Mapping[str, Any], num_images: int
) -> Iterator[tuple[Kind, str]]:
    """Yield all problems of a sample: the kind, and a message.

    Args:
        rules: Rules of the data set.
        tokens: int32 [2, num_tokens]: token ids and labels.
        meta: The sample's `meta.json`.
        num_images: Number of its stored images.

    Raises:
        KeyError, TypeError, ValueError: `meta` is invalid.
    """
    input_ids, labels = tokens
    is_image = input_ids == rules.info.image_token_id
    supervised = labels != IGNORED_LABEL
    if not supervised.any():
        yield "nothing_supervised", NOTHING_SUPERVISED
    places = np.flatnonzero(supervised & is_image)
    if len(places):
        yield "image_token_supervised", f"{_places('image token', places)} supervised"
    if supervised[0]:
        yield "first_token_supervised", "supervises its first token, which has no token before it"
    places = np.flatnonzero(supervised & (labels != input_ids))
    if len(places):
        message = (
            f"{_places('label', places)} neither {IGNORED_LABEL} nor the token of the same place "
            f"(label {labels[places[0]]}, token {input_ids[places[0]]})"
        )
        before = supervised[:-1]
        if before.any() and np.array_equal(input_ids[1:][before], labels[:-1][before]):
            message += ": they are those of the next token, but labels are not shifted here"
        yield "label_differs", message
    places = np.flatnonzero(~known_ids(input_ids, rules.is_token))
    if len(places):
        message = (
            f"{_places('token id', places)} none of the tokenizer's {int(rules.is_token.sum())} "
            f"({input_ids[places[0]]})"
        )
        yield "unknown_token", message
    num_noted = sum(len(sizes) for sizes in meta["stored_sizes"])
    if num_noted != num_images:
        yield "num_images", f"{_images(num_images)} stored, but meta.json has sizes of {num_noted}"
        return
    num_tokens, num_expected = int(is_image.sum()), num_image_tokens(rules, meta, num_images)
    if num_tokens != num_expected:
        message = (
            f"{num_tokens} image tokens, but {_images(num_images)} stored, which would have "
            f"{num_expected}"
        )
        yield "image_tokens", message


def known_ids(input_ids: np.ndarray, is_token: np.ndarray) -> np.ndarray:
    """Return which ids the tokenizer has: bool [num_tokens]."""
    in_range = (input_ids >= 0) & (input_ids < len(is_token))
    known: np.ndarray = in_range & is_token[np.where(in_range, input_ids, 0)]
    return known


def num_image_tokens(rules: Rules, meta: Mapping[str, Any], num_images: int) -> int:
    """Return how many tokens a sample's stored images must have."""
    info = rules.info
    if info.num_image_tokens is not None:
        return info.num_image_tokens * num_images
    if info.patch_size is not None and info.merge_size is not None:
        side = info.patch_size * info.merge_size
        sizes = (size for of_image in meta["stored_sizes"] for size in of_image)
        return sum((width // side) * (height // side) for width, height in sizes)
    plans = (rules.images.plan((width, height)) for width, height in meta["original_sizes"])
    return sum(
        count for plan in plans for piece, count in plan.placeholder if piece == info.image_token
    )


def _images(num: int) -> str:
    return f"{num or 'no'} image{' is' if num == 1 else 's are'}"


def _places(word: str, places: np.ndarray) -> str:
    """Return `3 labels, the first at position 7, are`."""
    if len(places) == 1:
        return f"the {word} at position {places[0]} is"
    return f"{len(places)} {word}s, the first at position {places[0]}, are"


# Checks all samples of a data set against the rules, in threads; first by the index.


MOST_FINDINGS = 10_000
"""Limit of listed findings; all are counted. If more is wrong, the whole data set is."""
_RUN_ROWS = 1024
"""Samples that a thread reads at a time."""

Report = Callable[[int, int, str], None]
"""Takes done, total and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem of one sample."""

    kind: Kind
    message: str
    key: str
    shard: str
    """`shards/shard-000000.tar`."""


class _Audit:
    """A data set that is checked by several threads, and the findings."""

    def __init__(self, folder: Path, index: DatasetIndex, rules: Rules) -> None:
        self.folder, self.index, self.rules = folder, index, rules
        self.findings: list[Finding] = []
        """The first `MOST_FINDINGS`, in the order of the index."""
        self.num_findings: Counter[Kind] = Counter()
        self.stored_sizes: Counter[tuple[int, int]] = Counter()
        """Number of stored images by width and height."""
        self._num_done, self._lock = 0, threading.Lock()

    def run(self, num_samples: int, num_threads: int, report: Report) -> None:
        """Read the tokens of the first `num_samples` of the index, and check them.

        For the others the index shows whether anything is supervised.

        Raises:
            OSError: a shard cannot be read, whether the data set is valid or not.
        """

        def check(rows: range) -> tuple[list[Finding], Counter[tuple[int, int]]]:
            result = self._check(rows)
            with self._lock:
                self._num_done += len(rows)
                num_done = self._num_done
            report(num_done, num_samples, "samples")
            return result

        with ThreadPoolExecutor(num_threads, thread_name_prefix="samples") as pool:
            for findings, sizes in pool.map(check, _runs(self.index, num_samples)):
                self._add(findings)
                self.stored_sizes.update(sizes)
        others = self.index.num_supervised_tokens[num_samples : len(self.index)]
        numbers = (num_samples + np.flatnonzero(others == 0)).tolist()
        self._add([self._finding(n, "nothing_supervised", NOTHING_SUPERVISED) for n in numbers])

    def place_of(self, number: int) -> dict[str, str]:
        """Return `key` and `shard` of a sample."""
        shard, shards = int(self.index.shard[number]), self.rules.info.shards
        name = shards[shard].name if 0 <= shard < len(shards) else f"no shard {shard}"
        return {
            "key": format_key(int(self.index.key[number])),
            "shard": f"{SHARDS_DIR}/{name}",
        }

    def open_shard(self, number: int) -> FileIO:
        """Open the shard of a sample.

        Raises:
            ValueError: the data set has no such shard.
            OSError: it cannot be opened.
        """
        shard, shards = int(self.index.shard[number]), self.rules.info.shards
        if not 0 <= shard < len(shards):
            message = f"the index names shard {shard}, but there are {len(shards)}"
            raise ValueError(message)
        return FileIO(descriptor_of(self.folder / SHARDS_DIR / shards[shard].name))

    def _add(self, findings: list[Finding]) -> None:
        self.num_findings.update(finding.kind for finding in findings)
        self.findings += findings[: MOST_FINDINGS - len(self.findings)]

    def _finding(self, number: int, kind: Kind, message: str) -> Finding:
        return Finding(kind=kind, message=message, **self.place_of(number))

    def _check(self, rows: range) -> tuple[list[Finding], Counter[tuple[int, int]]]:
        """Return the problems of samples of one shard, and the sizes of their images."""
        findings: list[Finding] = []
        sizes: Counter[tuple[int, int]] = Counter()
        try:
            with self.open_shard(rows.start) as file:
                for number in rows:
                    try:
                        sample = read_head(file.fileno(), self.index, number)
                        num_images = int(self.index.num_images[number])
                        wrong = list(find(self.rules, sample.tokens, sample.meta, num_images))
                        stored_sizes = chain.from_iterable(sample.meta["stored_sizes"])
                        sizes.update([(width, height) for width, height in stored_sizes])
                    except BROKEN as error:
                        text = f"{error}" if isinstance(error, ValueError) else f"{error!r}"
                        wrong = [("unreadable", f"{text}; `verify` compares checksums")]
                    findings += [self._finding(number, kind, message) for kind, message in wrong]
        except (ValueError, FileNotFoundError) as error:  # nothing of this shard can be read
            problem = "its shard is missing" if isinstance(error, OSError) else str(error)
            findings = [self._finding(number, "unreadable", problem) for number in rows]
        return findings, sizes


def _runs(index: DatasetIndex, num_samples: int) -> Iterator[range]:
    """Yield runs of samples in one shard."""
    for start in range(0, num_samples, _RUN_ROWS):
        end = min(start + _RUN_ROWS, num_samples)
        ends = np.flatnonzero(np.diff(index.shard[start:end])) + start + 1
        yield from (range(a, b) for a, b in pairwise([start, *ends.tolist(), end]))


# Stored images for a page: unchanged from the shard, or smaller if necessary.


_MAX_SIDE = 768
_SIDES = (_MAX_SIDE, 512, 384, 256, 192, 128, 96, 64)
_QUALITY = 85
_MIME = {".png": "image/png", ".jpg": "image/jpeg"}


def data_uri(data: memoryview, suffix: str, *, max_bytes: int) -> str:
    """Return a data URI of at most about `max_bytes`, which a browser shows offline.

    The bytes of the shard, or raw pixels as PNG, if they fit; else a JPEG, as large as
    possible.

    Raises:
        ValueError, OSError: it is not an image.
    """
    pixels = Image.fromarray(np.asarray(decode_stored_image(data, suffix)))
    if max(pixels.size) <= _MAX_SIDE:
        kind = next((mime for end, mime in _MIME.items() if suffix.endswith(end)), None)
        whole = bytes(data) if kind is not None else _encoded(pixels, "PNG")
        if len(whole) <= max_bytes:
            return _uri(kind or "image/png", whole)
    for side in _SIDES:
        small = pixels.copy()
        small.thumbnail((side, side))
        encoded = _encoded(small, "JPEG", quality=_QUALITY)
        if len(encoded) <= max_bytes:
            break
    return _uri("image/jpeg", encoded)


def _encoded(pixels: Image.Image, kind: str, **options: int) -> bytes:
    stream = io.BytesIO()
    pixels.save(stream, kind, **options)
    return stream.getvalue()


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


# Text of each token, as the tokenizer writes them in sequence.


Decode = Callable[[Sequence[int]], str]

_UNFINISHED = "\ufffd"
"""Decoded form of an incomplete character."""
_MOST_BYTES = 4
"""Bytes of a character in UTF-8, so the most tokens that form one together."""


def token_pieces(input_ids: Sequence[int], is_known: Sequence[bool], decode: Decode) -> list[str]:
    """Return the text of each token; joined, they are the text of all.

    Tokenizers that write a blank before words omit it before the first, so a token is decoded
    together with the previous ones (like vLLM's and TGI's incremental detokenisers). If several
    tokens form a character, the last has it, and the others are empty. An unknown id is written
    as such.
    """
    pieces = [""] * len(input_ids)
    first, start = 0, 0
    """Tokens from `first` on are decoded; those from `start` on have no text yet."""
    for place, token_id in enumerate(input_ids):
        if not is_known[place]:
            pieces[place] = f"<no token {token_id}>"
            first = start = place + 1
            continue
        before = decode(input_ids[first:start])
        text = decode(input_ids[first : place + 1])
        more = text[len(before) :]
        is_last = place + 1 == len(input_ids) or not is_known[place + 1]
        if more.endswith(_UNFINISHED) and place + 1 - start < _MOST_BYTES and not is_last:
            continue
        pieces[place] = more
        first, start = start, place + 1
    return pieces


# Entry point: from a request about a data set to the answer as JSON values.


_MOST_SIZES = 12
_PICTURES_BYTES = 3 << 20
"""Size of all pictures together."""
_LEAST_PICTURE_BYTES = 4096


def run(arguments: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Audit a data set, and return some of its samples.

    `arguments`: `folder`; `num` samples, the first of the index, or by `random_seed` any, or
    those of `keys`; `limit` of the audit (None: all samples); `with_pictures`; `num_threads`.

    Raises:
        StageError: the data set is not finished, its index damaged, or the processor unusable.
        OSError: a file cannot be read.
    """
    folder = Path(arguments["folder"])
    info = read_dataset_info(folder)
    index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
    for name in INDEX_TYPES:
        index.whole(name)
    statistics = index_statistics(index, info)
    chosen, unknown = _choose(index, arguments)
    if unknown:
        return {"unknown_keys": unknown}
    tokenizer = load_tokenizer(folder / PROCESSOR_DIR)
    ids = list(tokenizer.get_vocab().values())
    is_token = np.zeros(max(ids) + 1, dtype=bool)
    is_token[ids] = True
    processor = read_processor(folder / PROCESSOR_DIR, named_tokens(tokenizer))
    rules = Rules(info=info, is_token=is_token, images=processor.images)
    num_audited = min(arguments["limit"] or info.num_samples, info.num_samples)
    audit = _Audit(folder, index, rules)
    audit.run(num_audited, arguments["num_threads"], report)
    decode: Any = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    shown = [_shown(audit, number, decode) for number in chosen]
    if arguments["with_pictures"]:
        num_images = sum(len(images) for _, images in shown)
        max_bytes = max(_LEAST_PICTURE_BYTES, _PICTURES_BYTES // max(1, num_images))
        for sample, images in shown:
            sample["pictures"] = [_picture(data, suffix, max_bytes) for suffix, data in images]
    sizes = audit.stored_sizes
    return {
        "unknown_keys": [],
        "num_samples": info.num_samples,
        "num_shards": info.num_shards,
        "num_audited": num_audited,
        "image_kind": info.image_kind,
        "image_token": info.image_token,
        "image_token_id": info.image_token_id,
        "statistics": statistics,
        "num_stored_sizes": len(sizes),
        "stored_sizes": [[*size, num] for size, num in sizes.most_common(_MOST_SIZES)],
        "num_findings": dict(audit.num_findings),
        "findings": [asdict(finding) for finding in audit.findings],
        "samples": [sample for sample, _ in shown],
    }


def _choose(index: DatasetIndex, arguments: Mapping[str, Any]) -> tuple[list[int], list[str]]:
    """Return the index positions of the samples to show, and the unknown keys."""
    keys: Sequence[int] = arguments["keys"]
    if keys:
        places = {key: np.flatnonzero(index.key == key) for key in keys}
        unknown = [format_key(key) for key, rows_of_key in places.items() if not len(rows_of_key)]
        return [int(rows_of_key[0]) for rows_of_key in places.values() if len(rows_of_key)], unknown
    num = min(arguments["num"], len(index))
    if arguments["random_seed"] is None:
        return list(range(num)), []
    drawn = np.random.default_rng(arguments["random_seed"]).choice(len(index), num, replace=False)
    return drawn.tolist(), []


def _shown(
    audit: _Audit, number: int, decode: Decode
) -> tuple[dict[str, Any], tuple[tuple[str, memoryview], ...]]:
    """Return one sample as JSON values, or with a `problem`; and its images by suffix."""
    place = audit.place_of(number)
    try:
        with audit.open_shard(number) as file:
            raw = read_whole(file.fileno(), audit.index, number)
        ids, labels = raw.tokens.tolist()
        known = known_ids(raw.tokens[0], audit.rules.is_token).tolist()
        pairs = zip(raw.meta["original_sizes"], raw.meta["stored_sizes"], strict=True)
        sample = {
            **place,
            "problem": None,
            "row": int(raw.meta["row"]),
            "source": str(raw.meta["source"]),
            "is_truncated": bool(raw.meta["truncated"]),
            "images": [{"original": original, "stored": stored} for original, stored in pairs],
            "input_ids": ids,
            "labels": labels,
            "pieces": token_pieces(ids, known, decode),
        }
    except (*BROKEN, FileNotFoundError) as error:
        return {**place, "problem": f"cannot be read: {error}"}, ()
    return sample, raw.images


def _picture(data: memoryview, suffix: str, max_bytes: int) -> dict[str, str | None]:
    try:
        return {"uri": data_uri(data, suffix, max_bytes=max_bytes), "problem": None}
    except (*BROKEN, OSError) as error:
        return {"uri": None, "problem": f"{suffix} cannot be decoded: {error}"}

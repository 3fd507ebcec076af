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
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
from slurm_jobs.shared.manifest_formats import INDEX_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.shared.processors.folder import read_processor
from slurm_jobs.shared.processors.image_plans import ImageRules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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


def shard_path(folder: Path, info: DatasetInfo, shard: int) -> Path:
    """Return the path of a shard.

    Raises:
        ValueError: the data set has no such shard.
    """
    if not 0 <= shard < info.num_shards:
        message = f"the index names shard {shard}, but there are {info.num_shards}"
        raise ValueError(message)
    return folder / SHARDS_DIR / info.shards[shard].name


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
    yield from _of_labels(*tokens, image_token_id=rules.info.image_token_id)
    input_ids = tokens[0]
    known = known_ids(input_ids, rules.is_token)
    unknown = np.flatnonzero(~known)
    if len(unknown):
        message = (
            f"{_places('token id', unknown)} none of the tokenizer's {int(rules.is_token.sum())} "
            f"({input_ids[unknown[0]]})"
        )
        yield "unknown_token", message
    num_noted = sum(len(sizes) for sizes in meta["stored_sizes"])
    if num_noted != num_images:
        noted = f"meta.json has sizes of {num_noted}"
        yield "num_images", f"{_images(num_images)} stored, but {noted}"
        return
    num_found = int(np.count_nonzero(tokens[0] == rules.info.image_token_id))
    num_expected = num_image_tokens(rules, meta, num_images)
    if num_found != num_expected:
        message = (
            f"{num_found} image tokens, but {_images(num_images)} stored, which would have "
            f"{num_expected}"
        )
        yield "image_tokens", message


def _of_labels(
    input_ids: np.ndarray, labels: np.ndarray, *, image_token_id: int
) -> Iterator[tuple[Kind, str]]:
    supervised = labels != IGNORED_LABEL
    if not supervised.any():
        yield "nothing_supervised", NOTHING_SUPERVISED
        return
    of_image = np.flatnonzero(supervised & (input_ids == image_token_id))
    if len(of_image):
        yield "image_token_supervised", f"{_places('image token', of_image)} supervised"
    if supervised[0]:
        yield "first_token_supervised", "supervises its first token, which has no token before it"
    other = np.flatnonzero(supervised & (labels != input_ids))
    if len(other):
        first = int(other[0])
        message = (
            f"{_places('label', other)} neither {IGNORED_LABEL} nor the token of the same place "
            f"(label {labels[first]}, token {input_ids[first]}){_shift_text(input_ids, labels)}"
        )
        yield "label_differs", message


def _shift_text(input_ids: np.ndarray, labels: np.ndarray) -> str:
    supervised = labels[:-1] != IGNORED_LABEL
    if supervised.any() and np.array_equal(input_ids[1:][supervised], labels[:-1][supervised]):
        return ": they are those of the next token, but labels are not shifted here"
    return ""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Result of an audit."""

    findings: list[Finding]
    """The first `MOST_FINDINGS`, in the order of the index."""
    num_findings: Counter[Kind]
    stored_sizes: Counter[tuple[int, int]]
    """Number of stored images by width and height."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Audit:
    """State shared by the threads."""

    folder: Path
    index: DatasetIndex
    rules: Rules
    num_samples: int
    report: Report
    _num_done: list[int] = field(default_factory=lambda: [0])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, num: int) -> None:
        with self._lock:
            self._num_done[0] += num
            done = self._num_done[0]
        self.report(done, self.num_samples, "samples")


def audit(
    folder: Path,
    index: DatasetIndex,
    rules: Rules,
    *,
    num_samples: int,
    num_threads: int,
    report: Report,
) -> Found:
    """Read the tokens of the first `num_samples` of the index, and check them.

    For the others the index shows whether anything is supervised.

    Raises:
        OSError: a shard cannot be read, whether the data set is valid or not.
    """
    shared = _Audit(folder=folder, index=index, rules=rules, num_samples=num_samples, report=report)
    found = Found(findings=[], num_findings=Counter(), stored_sizes=Counter())
    with ThreadPoolExecutor(num_threads, thread_name_prefix="samples") as pool:
        for findings, sizes in pool.map(
            lambda rows: _read(shared, rows), _runs(index, num_samples)
        ):
            _add(found, findings)
            found.stored_sizes.update(sizes)
    rows = range(num_samples, len(index))
    zeros = np.flatnonzero(shared.index.num_supervised_tokens[rows.start : rows.stop] == 0)
    _add(
        found,
        [
            _finding(shared, rows.start + int(place), "nothing_supervised", NOTHING_SUPERVISED)
            for place in zeros
        ],
    )
    return found


def _add(found: Found, findings: list[Finding]) -> None:
    found.num_findings.update(finding.kind for finding in findings)
    found.findings.extend(findings[: MOST_FINDINGS - len(found.findings)])


def _runs(index: DatasetIndex, num_samples: int) -> Iterator[range]:
    """Yield runs of samples in one shard."""
    for start in range(0, num_samples, _RUN_ROWS):
        end = min(start + _RUN_ROWS, num_samples)
        ends = np.flatnonzero(np.diff(index.shard[start:end])) + start + 1
        places = [start, *ends.tolist(), end]
        yield from (range(a, b) for a, b in pairwise(places))


def _read(audit: _Audit, rows: range) -> tuple[list[Finding], Counter[tuple[int, int]]]:
    """Return the problems of samples of one shard, and the sizes of their images."""
    findings: list[Finding] = []
    sizes: Counter[tuple[int, int]] = Counter()
    file = None
    try:
        path = shard_path(audit.folder, audit.rules.info, int(audit.index.shard[rows.start]))
        file = os.open(path, os.O_RDONLY)
        for number in rows:
            findings += _of_sample(audit, file, number, sizes)
    except (ValueError, FileNotFoundError) as error:  # the shard: nothing of these can be read
        problem = "its shard is missing" if isinstance(error, OSError) else str(error)
        findings = [_finding(audit, number, "unreadable", problem) for number in rows]
    finally:
        if file is not None:
            os.close(file)
    audit.count(len(rows))
    return findings, sizes


def _of_sample(
    audit: _Audit, file: int, number: int, sizes: Counter[tuple[int, int]]
) -> Iterator[Finding]:
    try:
        sample = read_head(file, audit.index, number)
        num_images = int(audit.index.num_images[number])
        wrong = list(find(audit.rules, sample.tokens, sample.meta, num_images))
        sizes.update(stored_sizes(sample))
    except BROKEN as error:
        text = f"{error}" if isinstance(error, ValueError) else f"{error!r}"
        wrong = [("unreadable", f"{text}; `verify` compares checksums")]
    for kind, message in wrong:
        yield _finding(audit, number, kind, message)


def stored_sizes(sample: RawSample) -> list[tuple[int, int]]:
    """Return width and height of each stored image, from `meta.json`."""
    return [(width, height) for sizes in sample.meta["stored_sizes"] for width, height in sizes]


def _finding(audit: _Audit, number: int, kind: Kind, message: str) -> Finding:
    return Finding(kind=kind, message=message, **place_of(audit.index, audit.rules, number))


def place_of(index: DatasetIndex, rules: Rules, number: int) -> dict[str, str]:
    """Return `key` and `shard` of a sample."""
    shard = int(index.shard[number])
    shards = rules.info.shards
    name = shards[shard].name if 0 <= shard < len(shards) else f"no shard {shard}"
    return {"key": format_key(int(index.key[number])), "shard": f"{SHARDS_DIR}/{name}"}


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
        made = _encoded(small, "JPEG", quality=_QUALITY)
        if len(made) <= max_bytes:
            break
    return _uri("image/jpeg", made)


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
    rules = _make_rules(folder, info, tokenizer)
    num_audited = min(arguments["limit"] or info.num_samples, info.num_samples)
    num_threads = arguments["num_threads"]
    found = audit(
        folder, index, rules, num_samples=num_audited, num_threads=num_threads, report=report
    )
    shown = _Shown(folder, index, rules, tokenizer)
    samples = [shown.read(number) for number in chosen]
    if arguments["with_pictures"]:
        _add_pictures(samples)
    return {
        "unknown_keys": [],
        "num_samples": info.num_samples,
        "num_shards": info.num_shards,
        "num_audited": num_audited,
        "image_kind": info.image_kind,
        "image_token": info.image_token,
        "image_token_id": info.image_token_id,
        "statistics": statistics,
        "num_stored_sizes": len(found.stored_sizes),
        "stored_sizes": [[*size, num] for size, num in found.stored_sizes.most_common(_MOST_SIZES)],
        "num_findings": dict(found.num_findings),
        "findings": [asdict(finding) for finding in found.findings],
        "samples": [{k: v for k, v in sample.items() if k != "raw"} for sample in samples],
    }


def _choose(index: DatasetIndex, arguments: Mapping[str, Any]) -> tuple[list[int], list[str]]:
    """Return the index positions of the samples to show, and the unknown keys."""
    keys: Sequence[int] = arguments["keys"]
    if keys:
        places = {key: np.flatnonzero(index.key == key) for key in keys}
        unknown = [format_key(key) for key, found in places.items() if not len(found)]
        return [int(found[0]) for found in places.values() if len(found)], unknown
    num = min(arguments["num"], len(index))
    if arguments["random_seed"] is None:
        return list(range(num)), []
    drawn = np.random.default_rng(arguments["random_seed"]).choice(len(index), num, replace=False)
    return drawn.tolist(), []


def _make_rules(folder: Path, info: DatasetInfo, tokenizer: PreTrainedTokenizerBase) -> Rules:
    ids = list(tokenizer.get_vocab().values())
    is_token = np.zeros(max(ids) + 1, dtype=bool)
    is_token[ids] = True
    processor = read_processor(folder / PROCESSOR_DIR, named_tokens(tokenizer))
    return Rules(info=info, is_token=is_token, images=processor.images)


class _Shown:
    """Reads samples on demand."""

    def __init__(
        self, folder: Path, index: DatasetIndex, rules: Rules, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self._folder, self._index, self._rules = folder, index, rules
        self._tokenizer = tokenizer

    def read(self, number: int) -> dict[str, Any]:
        """Return one sample as JSON values, with its bytes as `raw`; or a `problem`."""
        place = place_of(self._index, self._rules, number)
        try:
            shard = int(self._index.shard[number])
            file = os.open(shard_path(self._folder, self._rules.info, shard), os.O_RDONLY)
            try:
                raw = read_whole(file, self._index, number)
            finally:
                os.close(file)
            ids, labels = raw.tokens.tolist()
            known = known_ids(raw.tokens[0], self._rules.is_token).tolist()
            pairs = zip(raw.meta["original_sizes"], raw.meta["stored_sizes"], strict=True)
            return {
                **place,
                "problem": None,
                "raw": raw,
                "row": int(raw.meta["row"]),
                "source": str(raw.meta["source"]),
                "is_truncated": bool(raw.meta["truncated"]),
                "images": [{"original": original, "stored": stored} for original, stored in pairs],
                "input_ids": ids,
                "labels": labels,
                "pieces": token_pieces(ids, known, self._decode),
            }
        except (*BROKEN, FileNotFoundError) as error:
            return {**place, "problem": f"cannot be read: {error}", "raw": None}

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text


def _add_pictures(samples: list[dict[str, Any]]) -> None:
    """Add `pictures` to each sample: a `uri` for each stored image, or why there is none."""
    num = sum(len(sample["raw"].images) for sample in samples if sample["raw"] is not None)
    max_bytes = max(_LEAST_PICTURE_BYTES, _PICTURES_BYTES // max(1, num))
    for sample in samples:
        images = () if sample["raw"] is None else sample["raw"].images
        sample["pictures"] = [_picture(data, suffix, max_bytes) for suffix, data in images]


def _picture(data: memoryview, suffix: str, max_bytes: int) -> dict[str, str | None]:
    try:
        return {"uri": data_uri(data, suffix, max_bytes=max_bytes), "problem": None}
    except (*BROKEN, OSError) as error:
        return {"uri": None, "problem": f"{suffix} cannot be decoded: {error}"}

"""Entry point: from a request about a data set to the answer as JSON values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.data.index import INDEX_TYPES, DatasetIndex, format_key, open_index
from pipeline.data.info import DatasetInfo, read_dataset_info
from pipeline.data.statistics import index_statistics
from pipeline.preprocess.tokenizer import load_tokenizer, named_tokens
from pipeline.samples.audit import Found, Report, audit, place_of
from pipeline.samples.pictures import data_uri
from pipeline.samples.pieces import token_pieces
from pipeline.samples.reading import BROKEN, RawSample, read_whole, shard_path
from pipeline.samples.rules import Rules, known_ids
from slurm_jobs.common.dataset_names import INDEX_NAME, PROCESSOR_DIR
from slurm_jobs.common.processors import read_processor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
    index = _open_whole_index(folder, info)
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
        **_found_values(found),
        "samples": [{k: v for k, v in sample.items() if k != "raw"} for sample in samples],
    }


def _open_whole_index(folder: Path, info: DatasetInfo) -> DatasetIndex:
    """Open the index, compared with all its checksums: its offsets can be trusted."""
    index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
    for name in INDEX_TYPES:
        index.whole(name)
    return index


def _found_values(found: Found) -> dict[str, Any]:
    return {
        "num_stored_sizes": len(found.stored_sizes),
        "stored_sizes": [[*size, num] for size, num in found.stored_sizes.most_common(_MOST_SIZES)],
        "num_findings": dict(found.num_findings),
        "findings": [asdict(finding) for finding in found.findings],
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
            return {**place, "problem": None, "raw": raw, **self._values(raw)}
        except (*BROKEN, FileNotFoundError) as error:
            return {**place, "problem": f"cannot be read: {error}", "raw": None}

    def _values(self, raw: RawSample) -> dict[str, Any]:
        ids, labels = raw.tokens.tolist()
        known = known_ids(raw.tokens[0], self._rules.is_token).tolist()
        pairs = zip(raw.meta["original_sizes"], raw.meta["stored_sizes"], strict=True)
        return {
            "row": int(raw.meta["row"]),
            "source": str(raw.meta["source"]),
            "is_truncated": bool(raw.meta["truncated"]),
            "images": [{"original": original, "stored": stored} for original, stored in pairs],
            "input_ids": ids,
            "labels": labels,
            "pieces": token_pieces(ids, known, self._decode),
        }

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

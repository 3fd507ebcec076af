"""Entry point of `samples`: from a request about a data set to the answer as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.disk_format.index import INDEX_TYPES, DatasetIndex, format_key, open_index
from pipeline.data.disk_format.index_statistics import index_statistics
from pipeline.preprocess.chat.tokenizer import load_tokenizer, named_tokens
from pipeline.tools.audit_rules import Rules, known_ids
from pipeline.tools.raw_samples import BROKEN, read_whole
from pipeline.tools.sample_audit import Report, SampleAudit
from pipeline.tools.stored_pictures import data_uri
from pipeline.tools.token_pieces import Decode, token_pieces
from slurm_jobs.formats.dataset_folder import INDEX_NAME, PROCESSOR_DIR
from slurm_jobs.formats.processors.folder import read_processor

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
    audit = SampleAudit(folder, index, rules)
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
    audit: SampleAudit, number: int, decode: Decode
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
            "source": _source(raw.meta),
            "is_truncated": bool(raw.meta["truncated"]),
            "images": [{"original": original, "stored": stored} for original, stored in pairs],
            "input_ids": ids,
            "labels": labels,
            "pieces": token_pieces(ids, known, decode),
        }
    except (*BROKEN, FileNotFoundError) as error:
        return {**place, "problem": f"cannot be read: {error}"}, ()
    return sample, raw.images


def _source(meta: Mapping[str, Any]) -> str:
    """Return the id or first image of a sample's row, after its manifest if that is of a list."""
    source = str(meta["source"])
    if "manifest" not in meta:
        return source
    return f"{meta['manifest']} row {meta['row']}: {source}"


def _picture(data: memoryview, suffix: str, max_bytes: int) -> dict[str, str | None]:
    try:
        return {"uri": data_uri(data, suffix, max_bytes=max_bytes), "problem": None}
    except (*BROKEN, OSError) as error:
        return {"uri": None, "problem": f"{suffix} cannot be decoded: {error}"}

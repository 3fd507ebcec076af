"""Check of a data set against its index, its checksums and itself.

`shard_check` compares shards in parallel; this file does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pipeline.consolidate.dealing import shards_of_task
from pipeline.data.disk_format.dataset_info import (
    REJECTS_NAME,
    DatasetInfo,
    read_dataset_info,
)
from pipeline.data.disk_format.index import INDEX_TYPES, DatasetIndex, open_index
from pipeline.preprocess.processor_folders import hash_folder
from pipeline.tools.shard_check import (
    BLOCK_BYTES,
    Report,
    ShardProblem,
    ShardReader,
    shard_problems,
)
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.formats.dataset_folder import (
    HELD_OUT_DIR,
    HELD_OUT_MANIFEST,
    HELD_OUT_PICTURES,
    INDEX_NAME,
    INFO_NAME,
    PROCESSOR_DIR,
    SHARD_FILE,
    SHARDS_DIR,
)
from slurm_jobs.formats.processors.processor_files import changed_files, processor_checksums

_BLOCK_ROWS = 1 << 20


def run(arguments: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Run the check: from `{"folder", "num_threads", "num_tasks"}` to the findings.

    `num_tasks` is the number of array tasks that made the data set; `slices` of the result are
    those that rewrite everything that is wrong.
    """
    folder = Path(arguments["folder"])
    problems, info = verify_dataset(folder, num_threads=arguments["num_threads"], report=report)
    result: dict[str, Any] = {
        "problems": [asdict(problem) for problem in problems],
        "slices": slices_to_redo(problems, info, arguments["num_tasks"]),
        "is_unfinished": not (folder / INFO_NAME).exists(),
    }
    if info is not None:
        result |= {
            "num_shards": info.num_shards,
            "num_samples": info.num_samples,
            "num_bytes": info.num_bytes,
        }
    return result


def slices_to_redo(
    problems: list[ShardProblem], info: DatasetInfo | None, num_tasks: int
) -> list[int]:
    """Return the array tasks whose shards have problems; any one rewrites all other files.

    None if that would fix nothing, because all problems are foreign files.
    """
    problems = [problem for problem in problems if not problem.is_foreign]
    if info is None:
        return list(range(num_tasks)) if problems else []
    shards = {problem.shard for problem in problems if problem.shard is not None}
    wrong = [
        task
        for task in range(num_tasks)
        if shards & set(shards_of_task(info.num_shards, task, num_tasks))
    ]
    return wrong or ([0] if problems else [])


def verify_dataset(
    folder: Path, *, num_threads: int, report: Report
) -> tuple[list[ShardProblem], DatasetInfo | None]:
    """Return all problems of a data set, and its info, if readable.

    Raises:
        OSError: a file could not be read, whether the data set is valid or not.
    """
    try:
        info = read_dataset_info(folder)
    except StageError as error:
        return [_problem_of(folder / INFO_NAME, error)], None
    problems, index = _index_problems(folder, info)
    problems += _other_problems(folder, info)
    sizes = [shard.num_samples for shard in info.shards]
    reader = ShardReader(
        folder=folder,
        info=info,
        index=index,
        report=report,
        first_sample=np.cumsum([0, *sizes], dtype=np.int64),
    )
    with ThreadPoolExecutor(num_threads, thread_name_prefix="verify") as pool:
        results = pool.map(lambda shard: shard_problems(reader, shard), range(info.num_shards))
        problems += [problem for of_shard in results for problem in of_shard]
    return problems, info


def _problem_of(path: Path, error: StageError) -> ShardProblem:
    """Turn an error that names the file and the remedy into a problem."""
    message = str(error).removeprefix(f"{path}: ").rpartition("; ")[0]
    return ShardProblem(file=path.name, message=message or str(error))


def _index_problems(
    folder: Path, info: DatasetInfo
) -> tuple[list[ShardProblem], DatasetIndex | None]:
    """Return the problems of the index; and the index, if its columns are intact."""
    try:
        index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
    except StageError as error:
        return [_problem_of(folder / INDEX_NAME, error)], None
    problems = []
    for name in INDEX_TYPES:
        try:
            index.whole(name)
        except StageError as error:
            problems.append(_problem_of(folder / INDEX_NAME, error))
    if problems:
        return problems, None
    totals = {"num_tokens": info.num_tokens, "num_images": info.num_images}
    for name, expected in totals.items():
        actual = int(getattr(index, name).sum(dtype=np.int64))
        if actual != expected:
            message = f"{name} add up to {actual}, {INFO_NAME} says {expected}"
            problems.append(ShardProblem(file=INDEX_NAME, message=message))
    end_key = info.end_key
    seen = np.zeros(-(-end_key // 8), dtype=np.uint8)
    num_wrong = 0
    for start in range(0, len(index), _BLOCK_ROWS):
        keys = index.key[start : start + _BLOCK_ROWS]
        valid = np.unique(keys[(keys >= 0) & (keys < end_key)])
        places, bits = valid >> 3, (1 << (valid & 7)).astype(np.uint8)
        is_new = (seen[places] & bits) == 0
        np.bitwise_or.at(seen, places, bits)
        num_wrong += len(keys) - int(is_new.sum())
    if num_wrong:
        message = f"{num_wrong} keys come more than once, or are not rows of the manifest"
        problems.append(ShardProblem(file=INDEX_NAME, message=message))
    return problems, index


def _other_problems(folder: Path, info: DatasetInfo) -> Iterator[ShardProblem]:
    """Yield problems of foreign files, the processor, the list of rejects, and held-out rows."""
    yield from _unknown_files(folder, info)
    processor = folder / PROCESSOR_DIR
    expected = info.preprocess["processor_xxh3"]
    actual = f"xxh3 {hash_folder(processor)}" if processor.is_dir() else "missing"
    if actual != f"xxh3 {expected}":
        changes = changed_files(info.processor_sha256 or {}, processor_checksums(processor))
        named = f" ({', '.join(changes)})" if info.processor_sha256 and changes else ""
        yield ShardProblem(file=PROCESSOR_DIR, message=f"{actual}, expected xxh3 {expected}{named}")
    rejects = folder / REJECTS_NAME
    num_expected = info.num_rejected
    actual, xxh3 = "missing", ""
    if rejects.is_file():
        num_lines, xxh3 = _lines_and_hash(rejects)
        actual = f"{num_lines} rejects"
    if actual != f"{num_expected} rejects":
        yield ShardProblem(file=REJECTS_NAME, message=f"{actual}, expected {num_expected} rejects")
    elif info.rejects_xxh3 not in (None, xxh3):
        message = f"xxh3 {xxh3}, expected {info.rejects_xxh3}"
        yield ShardProblem(file=REJECTS_NAME, message=message)
    if info.held_out is not None:
        for name, expected in (
            (HELD_OUT_MANIFEST, info.held_out.rows_xxh3),
            (HELD_OUT_PICTURES, info.held_out.pictures_xxh3),
        ):
            path, actual = folder / HELD_OUT_DIR / name, "missing"
            if path.is_file():
                actual = f"xxh3 {_lines_and_hash(path)[1]}"
            if actual != f"xxh3 {expected}":
                message = f"{actual}, expected xxh3 {expected}"
                yield ShardProblem(file=f"{HELD_OUT_DIR}/{name}", message=message)


def _unknown_files(folder: Path, info: DatasetInfo) -> Iterator[ShardProblem]:
    """Yield extra shards, and folders that a reader might take for part of the data set."""
    known = {shard.name for shard in info.shards}
    for path in _listed(folder / SHARDS_DIR):
        file = f"{SHARDS_DIR}/{path.name}"
        if path.is_dir():
            yield _foreign(file)
        elif path.name not in known:
            message = f"no shard of this data set: {INFO_NAME} names {info.num_shards} others"
            is_foreign = SHARD_FILE.fullmatch(path.name) is None
            yield ShardProblem(file=file, message=message, is_foreign=is_foreign)
    for path in _listed(folder / PROCESSOR_DIR):
        if path.is_dir():
            yield _foreign(f"{PROCESSOR_DIR}/{path.name}")


def _listed(folder: Path) -> list[Path]:
    """Return the files of a folder; hidden files are the file system's or a killed attempt's."""
    return sorted(path for path in folder.glob("*") if not path.name.startswith("."))


def _foreign(file: str) -> ShardProblem:
    message = "a folder that is not part of this data set; remove it, or keep it elsewhere"
    return ShardProblem(file=file, message=message, is_foreign=True)


def _lines_and_hash(path: Path) -> tuple[int, str]:
    num_lines, digest = 0, xxhash.xxh3_64()
    with open_regular(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            num_lines += block.count(b"\n")
            digest.update(block)
    return num_lines, digest.hexdigest()

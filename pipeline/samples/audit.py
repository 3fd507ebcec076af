"""Checks all samples of a data set against the rules, in threads; first by the index."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.data.index import DatasetIndex, format_key
from pipeline.samples.reading import BROKEN, RawSample, read_head, shard_path
from pipeline.samples.rules import NOTHING_SUPERVISED, Kind, Rules, find
from slurm_jobs.common.dataset_names import SHARDS_DIR

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
    _add(found, _unsupervised(shared, range(num_samples, len(index))))
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


def _unsupervised(audit: _Audit, rows: range) -> list[Finding]:
    zeros = np.flatnonzero(audit.index.num_supervised_tokens[rows.start : rows.stop] == 0)
    return [
        _finding(audit, rows.start + int(place), "nothing_supervised", NOTHING_SUPERVISED)
        for place in zeros
    ]


def _finding(audit: _Audit, number: int, kind: Kind, message: str) -> Finding:
    return Finding(kind=kind, message=message, **place_of(audit.index, audit.rules, number))


def place_of(index: DatasetIndex, rules: Rules, number: int) -> dict[str, str]:
    """Return `key` and `shard` of a sample."""
    shard = int(index.shard[number])
    shards = rules.info.shards
    name = shards[shard].name if 0 <= shard < len(shards) else f"no shard {shard}"
    return {"key": format_key(int(index.key[number])), "shard": f"{SHARDS_DIR}/{name}"}

"""Audit of all samples of a data set against the rules, in threads; first by the index."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from pipeline.data.disk_format.index import DatasetIndex, format_key
from pipeline.tools.audit_rules import NOTHING_SUPERVISED, Kind, Rules, find
from pipeline.tools.raw_samples import BROKEN, read_head
from slurm_jobs.base.regular_files import descriptor_of
from slurm_jobs.formats.dataset_folder import SHARDS_DIR

MOST_FINDINGS = 10_000
"""Limit of listed findings; all are counted. If more is wrong, the whole data set is."""
_RUN_ROWS = 1024
"""Samples that a thread reads at a time."""

Report = Callable[[int, int, str], None]
"""Takes done, total and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleFinding:
    """One problem of one sample."""

    kind: Kind
    message: str
    key: str
    shard: str
    """`shards/shard-000000.tar`."""


class SampleAudit:
    """A data set that is checked by several threads, and the findings."""

    def __init__(self, folder: Path, index: DatasetIndex, rules: Rules) -> None:
        self.folder, self.index, self.rules = folder, index, rules
        self.findings: list[SampleFinding] = []
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

        def check(rows: range) -> tuple[list[SampleFinding], Counter[tuple[int, int]]]:
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

    def _add(self, findings: list[SampleFinding]) -> None:
        self.num_findings.update(finding.kind for finding in findings)
        self.findings += findings[: MOST_FINDINGS - len(self.findings)]

    def _finding(self, number: int, kind: Kind, message: str) -> SampleFinding:
        return SampleFinding(kind=kind, message=message, **self.place_of(number))

    def _check(self, rows: range) -> tuple[list[SampleFinding], Counter[tuple[int, int]]]:
        """Return the problems of samples of one shard, and the sizes of their images."""
        findings: list[SampleFinding] = []
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

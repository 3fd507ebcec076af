"""Manifests that are WebDataset tars.

Each tar is walked once to count its rows, with a checksum of the names, sizes, times and texts of
its members. The bytes of pictures are not part of it, as in tables. The counts are stored for some
tars together, and tasks that begin at the same time count them in different orders, so that they
share the work. A slice reads the tars of its rows from their beginning to their end, and compares
the checksum there.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from pipeline.preprocess.file_facts import KeptFile, facts_of, kept_file
from pipeline.preprocess.manifests.interface import changed
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.formats.manifests.bounded_lines import MAX_ROW_BYTES
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.table_set import TableFiles
from slurm_jobs.formats.manifests.tars.group_values import group_row, is_text
from slurm_jobs.formats.manifests.tars.tar_groups import OpenTar, TarGroup, open_tar
from slurm_jobs.formats.tar_headers import BrokenArchiveError

_TARS_OF_A_COUNT = 16
"""Tars whose counts are in one file: 160,000 samples of img2dataset, which take 20 s to count."""
_NUM_THREADS = 4
"""Tars that are counted at once; most of the time is waiting for storage."""
_FORMAT = "slurm-jobs-tar-count-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Count:
    num_rows: int
    xxh3: int


class TarManifest:
    """Manifest of tars. Rows are numbered through the tars in their order."""

    def __init__(
        self,
        path: Path,
        table: TableFiles,
        options: RowOptions,
        *,
        limit: int | None,
        index_dir: Path | None,
    ) -> None:
        """Count the rows of the tars up to `limit`, or load their stored counts.

        Raises:
            StageConfigError: a tar is damaged.
        """
        self.path = path
        self._table = table
        self._options = options
        self._index_dir = index_dir
        self._facts = [facts_of(tar) for tar in table.files]
        self._counts = self._count_all(limit)
        self.fingerprint = _fingerprint(self._counts)
        total = sum(count.num_rows for count in self._counts)
        self.num_rows = total if limit is None else min(limit, total)

    def _count_all(self, limit: int | None) -> list[_Count]:
        """Return the counts of all tars, or of the first ones that have `limit` rows."""
        starts = list(range(0, len(self._table.files), _TARS_OF_A_COUNT))
        if limit is None:
            random.shuffle(starts)
        counts: dict[int, list[_Count]] = {}
        num_rows = 0
        for start in starts:
            if limit is not None and num_rows >= limit:
                break
            counts[start] = self._count_some(start, None if limit is None else limit - num_rows)
            num_rows += sum(count.num_rows for count in counts[start])
        in_order = [count for start in sorted(counts) for count in counts[start]]
        return in_order if limit is None else in_order[: _num_tars(in_order, limit)]

    def _count_some(self, start: int, limit: int | None) -> list[_Count]:
        tars = self._table.files[start : start + _TARS_OF_A_COUNT]
        kept = self._kept(start)
        data = kept.load_checked()
        if data is not None:
            return [_Count(num_rows=num_rows, xxh3=xxh3) for num_rows, xxh3 in json.loads(data)]
        if limit is not None:
            counts: list[_Count] = []
            for tar in tars:
                if sum(count.num_rows for count in counts) < limit:
                    counts.append(self._count(tar))
            return counts
        with ThreadPoolExecutor(_NUM_THREADS) as pool:
            counts = list(pool.map(self._count, tars))
        kept.save_checked(json.dumps([[count.num_rows, count.xxh3] for count in counts]).encode())
        return counts

    def _kept(self, start: int) -> KeptFile:
        facts = self._facts[start : start + _TARS_OF_A_COUNT]
        about = f"{_FORMAT} {sorted(self._table.excluded)}"
        return kept_file(self._index_dir, "tars", facts, about=about)

    def _count(self, tar: Path) -> _Count:
        digest = xxhash.xxh3_64()
        try:
            with open_tar(tar) as opened:
                num_rows = sum(1 for _ in self._groups(opened, digest))
        except BrokenArchiveError as error:
            message = f"{tar}: {error}"
            raise StageDataError(message) from error
        return _Count(num_rows=num_rows, xxh3=digest.intdigest())

    def _groups(self, tar: OpenTar, digest: xxhash.xxh3_64) -> Iterator[TarGroup]:
        """Yield the groups that are rows; the digest is that of all groups up to the last one."""
        for group in tar.groups(self._table.excluded):
            for extension, member in group.members.items():
                facts = f"{member.name}\0{member.size}\0{member.mtime}\0"
                digest.update(facts.encode("utf-8", "surrogateescape"))
                if is_text(extension) and member.isreg() and member.size <= MAX_ROW_BYTES:
                    digest.update(tar.read(member))
            yield group

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """Yield the rows of these numbers (`Manifest.rows`)."""
        first = 0
        for number, (tar, count) in enumerate(zip(self._table.files, self._counts, strict=False)):
            if first < wanted.stop and first + count.num_rows > wanted.start:
                try:
                    yield from self._rows_of_tar(tar, count, first, wanted)
                except (BrokenArchiveError, FileNotFoundError) as error:
                    self._kept(number - number % _TARS_OF_A_COUNT).remove()
                    raise changed(self.path, f"{tar.name}: {error}") from error
            first += count.num_rows

    def _rows_of_tar(
        self, tar: Path, count: _Count, first: int, wanted: range
    ) -> Iterator[ManifestRow]:
        digest = xxhash.xxh3_64()
        num_rows = 0
        with open_tar(tar) as opened:
            for group in self._groups(opened, digest):
                row = first + num_rows
                num_rows += 1
                if row in wanted:
                    origin = RowOrigin(row=row, line=None, manifest=tar, key=group.key)
                    yield group_row(origin, group, opened.read, self._options, self._table.fields)
        if _Count(num_rows=num_rows, xxh3=digest.intdigest()) != count:
            message = "it has other rows than when it was counted"
            raise BrokenArchiveError(message)

    def fingerprint_now(self) -> str | None:
        """Return the current fingerprint; tars are read again only if their times have changed."""
        with suppress(OSError, StageConfigError):
            if [facts_of(tar) for tar in self._table.files] == self._facts:
                return self.fingerprint
            tars = self._table.files[: len(self._counts)]
            return _fingerprint([self._count(tar) for tar in tars])
        return None


def _num_tars(counts: Sequence[_Count], limit: int) -> int:
    """Return how many of the tars have the first `limit` rows."""
    totals = itertools.accumulate(count.num_rows for count in counts)
    return next((number for number, total in enumerate(totals, 1) if total >= limit), len(counts))


def _fingerprint(counts: Sequence[_Count]) -> str:
    values = [[count.num_rows, count.xxh3] for count in counts]
    return xxhash.xxh3_64_hexdigest(json.dumps({"format": _FORMAT, "tars": values}).encode())

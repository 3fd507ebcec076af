"""Several manifests as one sequence of rows: all rows of the first, then those of the second."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import xxhash

from pipeline.preprocess.manifests.interface import Manifest
from slurm_jobs.formats.manifests.messages import ListedManifest, ManifestRow


class ManifestSequence:
    """Manifests of a list, in its order; see `Manifest`.

    Rows have the numbers and lines of their own file, and know which manifest they are from.
    """

    def __init__(
        self, manifests: Sequence[Manifest], names: Sequence[str], *, limit: int | None
    ) -> None:
        """Join open manifests; a `limit` is divided equally, as far as each has rows."""
        self.manifests = manifests
        self.path = Path(", ".join(manifest.path.name for manifest in manifests))
        self.sizes = [manifest.num_rows for manifest in manifests]
        if limit is not None:
            self.sizes = limited(self.sizes, limit)
        self.num_rows = sum(self.sizes)
        self.fingerprint = _fingerprint([manifest.fingerprint for manifest in manifests])
        self._listed = [
            ListedManifest(name=name, number=number, rows_before=sum(self.sizes[:number]))
            for number, name in enumerate(names)
        ]

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """Yield the rows of these numbers (`Manifest.rows`)."""
        for manifest, listed, size in zip(self.manifests, self._listed, self.sizes, strict=True):
            start = max(0, wanted.start - listed.rows_before)
            stop = min(size, wanted.stop - listed.rows_before)
            if start < stop:
                for row in manifest.rows(range(start, stop)):
                    yield replace(row, origin=replace(row.origin, listed=listed))

    def fingerprint_now(self) -> str | None:
        """Return the fingerprint of the current contents; None if one cannot be read."""
        current = [manifest.fingerprint_now() for manifest in self.manifests]
        return None if None in current else _fingerprint(current)


def limited(sizes: Sequence[int], limit: int) -> list[int]:
    """Return sizes that add up to `limit` at most, as equal as the given ones allow."""
    fitting = [0] * len(sizes)
    remaining = limit
    by_size = sorted(range(len(sizes)), key=lambda place: (sizes[place], place))
    for num_done, place in enumerate(by_size):
        fitting[place] = min(sizes[place], remaining // (len(sizes) - num_done))
        remaining -= fitting[place]
    return fitting


def _fingerprint(fingerprints: Sequence[str | None]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(fingerprints).encode())

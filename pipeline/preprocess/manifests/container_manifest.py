"""Manifests whose rows are joined from the lists of a JSON object (`containers`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import xxhash

from pipeline.preprocess.file_facts import facts_of
from pipeline.preprocess.manifests.interface import changed
from slurm_jobs.formats.manifests.containers.json_container import Container
from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row

_PIECE_BYTES = 1 << 20


class ContainerManifest:
    """Manifest of a container, whose values stay in memory; see `Manifest`."""

    def __init__(
        self, path: Path, container: Container, options: RowOptions, *, limit: int | None
    ) -> None:
        """Join the rows, and hash the files.

        Raises:
            StageError: a file changes meanwhile.
        """
        self.path = path
        self._files = container.files
        self._options = options
        self._facts = [facts_of(file) for file in self._files]
        self._rows = container.rows
        self.num_rows = len(self._rows) if limit is None else min(limit, len(self._rows))
        self.fingerprint = self._hash()
        if self.fingerprint_now() != self.fingerprint:
            raise changed(path, "while it was opened")

    def rows(self, wanted: range) -> Iterator[ManifestRow]:
        """Yield the rows of these numbers (`Manifest.rows`)."""
        for row in range(wanted.start, min(wanted.stop, self.num_rows)):
            origin = RowOrigin(row=row, line=None, manifest=self.path)
            yield read_row(origin, self._rows[row], self._options)

    def fingerprint_now(self) -> str | None:
        """Return the current fingerprint; the files are read again if their times have changed."""
        with suppress(OSError):
            if [facts_of(file) for file in self._files] == self._facts:
                return self.fingerprint
            return self._hash()
        return None

    def _hash(self) -> str:
        digest = xxhash.xxh3_64()
        for file in self._files:
            with file.open("rb") as stream:
                while piece := stream.read(_PIECE_BYTES):
                    digest.update(piece)
            digest.update(b"\0")
        return digest.hexdigest()

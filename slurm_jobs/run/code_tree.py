"""Code of the user as jobs see it: the files of a snapshot, or those that a snapshot would have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.run.code_files import all_files, content_digest, public_files


class CodeTree:
    """Files by their names below the snapshot's `user/`; contents are read when they are needed."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files
        self._digests: dict[str, str] = {}

    @classmethod
    def of_snapshot(cls, folder: Path) -> CodeTree:
        """Return the user's code in a snapshot of a run.

        Raises:
            FileNotFoundError: the snapshot is gone.
        """
        return cls(all_files(sorted((folder / "user").iterdir())))

    @classmethod
    def of_sources(cls, sources: Sequence[Path]) -> CodeTree:
        """Return the code that a snapshot of `sources` would have.

        Raises:
            InputError: this user cannot read one of its files or folders.
        """
        return cls(public_files(sources))

    def digest(self, name: str) -> str | None:
        """Return a hash of a file's content and executable bit; None if there is no such file."""
        path = self.files.get(name)
        if path is None:
            return None
        if name not in self._digests:
            kind = "program" if os.access(path, os.X_OK) else "file"
            self._digests[name] = f"{kind} {content_digest(path).hex()}"
        return self._digests[name]

    def text(self, name: str) -> str:
        """Return the text of a file; bytes that are not UTF-8 are replaced."""
        with open_regular(self.files[name]) as stream:
            return stream.read().decode(errors="replace")

    def differing(self, other: CodeTree) -> frozenset[str]:
        """Return the names of files that are not equal in both."""
        return frozenset(
            name
            for name in self.files.keys() | other.files.keys()
            if self.digest(name) != other.digest(name)
        )

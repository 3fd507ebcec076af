"""Files of held-out rows: a manifest, and a tar of their pictures.

`part-00003.held_out.jsonl` has the rows of a slice as chat messages, and `part-00003.held_out.tar`
the files of their pictures as they were read, each once, under the hash of its bytes.
`consolidate` joins them to `manifest.jsonl` and `pictures.tar`, so the rows name the latter.
They need neither the original manifest nor its images.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import xxhash

from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE, member_bytes
from pipeline.preprocess.held_out_choice import picture_hash
from pipeline.preprocess.part import PartPaths
from slurm_jobs.base.files import atomic_writer
from slurm_jobs.formats.dataset_folder import HELD_OUT_PICTURES
from slurm_jobs.formats.manifests.messages import ManifestRow


@dataclass(slots=True)
class PictureArchive:
    """Writes a tar of pictures into `stream`, each once."""

    stream: IO[bytes]
    _names: set[str] = field(default_factory=set)
    _digest: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def add(self, data: bytes) -> str:
        """Append a picture unless the archive has it, and return its member's name."""
        name = picture_hash(data)
        if name not in self._names:
            self._names.add(name)
            self._write(member_bytes(name, data))
        return name

    def finish(self) -> str:
        """Close the archive, and return its xxh3-64 in hexadecimal."""
        self._write(END_OF_ARCHIVE)
        return self._digest.hexdigest()

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self._digest.update(data)


@dataclass(kw_only=True, slots=True)
class HeldOutWriter:
    """Appends the rows that a slice holds out."""

    share: float
    rows: IO[bytes]
    pictures: PictureArchive
    num_rows: int = 0

    def add(self, row: ManifestRow, pictures: Sequence[bytes]) -> None:
        """Append a row, with the files of its pictures in their order."""
        names = [f"{HELD_OUT_PICTURES}::{self.pictures.add(data)}" for data in pictures]
        line = json.dumps(row_values(row, names), ensure_ascii=False)
        self.rows.write(f"{line}\n".encode())
        self.num_rows += 1


@contextmanager
def open_held_out(paths: PartPaths, share: float | None) -> Iterator[HeldOutWriter | None]:
    """Write the held-out rows of a part; None, and no file, without a share."""
    files = (paths.held_out_rows, paths.held_out_pictures)
    if share is None:
        for file in files:  # of an attempt with a share
            file.unlink(missing_ok=True)
        yield None
        return
    with atomic_writer(files[0]) as rows, atomic_writer(files[1]) as pictures:
        writer = HeldOutWriter(share=share, rows=rows, pictures=PictureArchive(pictures))
        yield writer
        writer.pictures.finish()


def row_values(row: ManifestRow, names: Sequence[str]) -> dict[str, Any]:
    """Return a row as JSON in the format of chat messages, with these names of its pictures."""
    waiting = iter(names)
    turns = []
    for message in row.messages:
        content = []
        for item in message.content:
            if item.kind == "image":
                content.append({"type": "image", "image": next(waiting)})
            else:
                content.append({"type": "text", "text": item.value})
        turn: dict[str, Any] = {"role": message.role, "content": content}
        if not message.is_learned:
            turn["loss"] = False
        turns.append(turn)
    return {"id": row.source, "row": row.origin.number, "messages": turns}

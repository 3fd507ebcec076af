"""Held-out rows of all parts as one manifest, with one archive of their pictures."""

from __future__ import annotations

import mmap
import shutil

import xxhash

from pipeline.consolidate.parts import Parts
from pipeline.consolidate.pieces import PiecePaths
from pipeline.data.disk_format.dataset_info import HeldOutInfo
from pipeline.data.disk_format.tar_format import scan_members
from pipeline.data.permutation import make_permutation
from pipeline.preprocess.held_out_files import PictureArchive
from pipeline.preprocess.part import PartPaths
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import atomic_writer, make_private_dir, sync_dir, write_bytes_atomic
from slurm_jobs.formats.dataset_folder import HELD_OUT_DIR, HELD_OUT_MANIFEST, HELD_OUT_PICTURES


def join_held_out(parts: Parts, piece_paths: PiecePaths, seed: int) -> HeldOutInfo | None:
    """Write the manifest and the archive of a data set; None, and neither, without `held_out`.

    The rows are shuffled, because evaluations during a training take the first ones. Neither file
    depends on the slices.

    Raises:
        StageError: a part's file is missing, or a picture does not match its name.
    """
    folder, work_dir = piece_paths.output_dir / HELD_OUT_DIR, piece_paths.work_dir
    if parts.num_held_out is None:
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier data set
        return None
    lines = [line for part in parts.paths for line in _lines_of(part)]
    rows = b"".join(lines[number] for number in _order(len(lines), seed))
    write_bytes_atomic(work_dir / HELD_OUT_MANIFEST, rows)
    with atomic_writer(work_dir / HELD_OUT_PICTURES) as stream:
        archive = PictureArchive(stream)
        for part in parts.paths:
            _append_pictures(archive, part)
        pictures_xxh3 = archive.finish()
    make_private_dir(folder)
    for name in (HELD_OUT_PICTURES, HELD_OUT_MANIFEST):
        (work_dir / name).replace(folder / name)
    sync_dir(folder)
    return HeldOutInfo(
        num_rows=len(lines),
        rows_xxh3=xxhash.xxh3_64_hexdigest(rows),
        pictures_xxh3=pictures_xxh3,
    )


def _order(num_rows: int, seed: int) -> list[int]:
    return make_permutation(num_rows, [seed]).slice(0, num_rows).tolist() if num_rows else []


def _lines_of(part: PartPaths) -> list[bytes]:
    try:
        return part.held_out_rows.read_bytes().splitlines(keepends=True)
    except FileNotFoundError as error:
        message = f"{part.held_out_rows}: missing; preprocess slice {part.slice_index} again"
        raise StageError(message) from error


def _append_pictures(archive: PictureArchive, part: PartPaths) -> None:
    again = f"preprocess slice {part.slice_index} again"
    try:
        with (
            part.held_out_pictures.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            for member in scan_members(view):
                picture = bytes(view[member.start : member.start + member.num_bytes])
                if archive.add(picture) != member.name:
                    message = (
                        f"{part.held_out_pictures}: the picture {member.name} does not match its "
                        f"checksum; {again}"
                    )
                    raise StageError(message)
    except (FileNotFoundError, ValueError) as error:
        message = f"{part.held_out_pictures}: missing or damaged ({error}); {again}"
        raise StageError(message) from error

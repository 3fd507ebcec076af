"""The same as `ours`, with several samples per row."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.resuming import ours
from benchmarks.peers.resuming.going_on import Place
from pipeline.data.packing.pack_files import open_packs

NAME = "ours, packed"
NEEDS = ours.NEEDS
PACKAGE = ours.PACKAGE
IS_STATE_OF_RANK = ours.IS_STATE_OF_RANK
build_numbers = ours.build_numbers


def num_packs(folder: Path) -> int:
    """Return the number of packs in an epoch."""
    return len(open_packs(folder / "packs.bin", ours.PACKS_KEY))


def open_numbers(folder: Path, place: Place) -> ours.OurLoader:
    """See `Resumable`."""
    return ours.open_numbers(folder, place, is_packed=True)

"""Samples read out of parts by several threads with few files open."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.consolidate import reader
from pipeline.consolidate.parts import gather_parts
from pipeline.consolidate.reader import PartReader, cut_runs
from pipeline.consolidate.rows import fetch_rows
from slurm_jobs.common.context import ParentStage
from tests.pipeline.build import preprocess_23


def test_a_file_stays_open_while_it_is_read_whoever_lets_go_of_it(
    tmp_path: Path, processor_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    parts = gather_parts(
        ParentStage(stage="prep", run="preprocess", output_dir=parts_dir, num_slices=2)
    )
    opened = PartReader(parts=parts, max_open=1)
    really = os.pread

    def read_late(descriptor: int, num_bytes: int, offset: int) -> bytes:
        opened._open.clear()  # as another thread does that opens another part
        return really(descriptor, num_bytes, offset)

    (row,) = fetch_rows(parts, np.array([0]), num_threads=1)
    monkeypatch.setattr(reader.os, "pread", read_late)
    assert len(opened.read(0, row)) == int(row["num_bytes"])


def test_runs_are_short_and_cover_every_sample() -> None:
    sizes = np.array([10] * 20 + [2 << 20] + [600_000] * 3)
    runs = list(cut_runs(sizes))
    assert [number for run in runs for number in range(run.start, run.stop)] == list(range(24))
    assert max(run.stop - run.start for run in runs) == 8
    assert slice(20, 21) in runs

"""The page cache: which files the kernel drops."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.nodes.measures.file_systems import measure_file_system
from pipeline.nodes.measures.measurement import Deadline
from pipeline.nodes.measures.page_cache import drop_from_cache, resident_share
from slurm_jobs.formats.configs.stages import ProbeConfig

SMALL = ProbeConfig(file_mb=8, num_small_files=5)


def test_the_page_cache_lets_go_of_a_file_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as stream:
        stream.write(os.urandom(2**20))
        stream.flush()
        assert resident_share(stream.fileno()) == 1.0
        kept = drop_from_cache(stream.fileno())
    found = measure_file_system("local", tmp_path, SMALL, Deadline.after(1))
    assert found.details["local"]["reads_are_cold"] == (kept == 0.0)

"""The end of a data set: by several tasks at once, beside other files, with another processor."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.consolidate import finish, stage
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import preprocess_23, run_consolidate
from tests.pipeline.consolidate.conftest import RunTasks, files_of


def test_files_without_the_name_of_a_shard_are_left_next_to_the_shards(
    tmp_path: Path, processor_dir: Path
) -> None:
    """`.nfs...` is a shard that was replaced while somebody read it; NFS refuses to remove it."""
    parts_dir = preprocess_23(tmp_path, processor_dir)
    shards = tmp_path / "set" / "output" / "shards"
    (shards / "of-a-user").mkdir(parents=True)
    (shards / ".nfs000000000001").write_bytes(b"")
    (shards / "shard-000009.tar").write_bytes(b"")
    (shards / ".shard-000009.tar.0123456789ab.tmp").write_bytes(b"")
    run_consolidate(tmp_path / "set", parts_dir, 2, num_shards=1)
    found = {path.name for path in shards.iterdir()}
    assert found == {"of-a-user", ".nfs000000000001", "shard-000000.tar"}


def test_folder_within_an_earlier_processor_stops_nothing(
    tmp_path: Path, processor_dir: Path
) -> None:
    parts_dir = preprocess_23(tmp_path, processor_dir)
    processor = tmp_path / "set" / "output" / "processor"
    (processor / "of-a-user").mkdir(parents=True)
    (processor / "older.json").write_text("{}")
    run_consolidate(tmp_path / "set", parts_dir, 2)
    assert (processor / "of-a-user").is_dir()
    assert not (processor / "older.json").exists()


def test_a_missing_processor_is_a_permanent_error(tmp_path: Path, processor_dir: Path) -> None:
    own = Path(shutil.copytree(processor_dir, tmp_path / "processor"))
    parts_dir = preprocess_23(tmp_path, own)
    shutil.rmtree(own)
    words = (
        r"processor: .* no longer exists; restore it, or .* by `slurm-jobs resume .* "
        r"--again prep --set stages\.prep\.config\.processor=FOLDER`$"
    )
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)


def test_tasks_that_end_at_the_same_time_both_finish_the_same_data_set(
    folder: Path, run_tasks: RunTasks, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither looks for the others' pieces before both have written theirs."""
    both = threading.Barrier(2, timeout=60)

    def when_both_are_there(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (both.wait(), function(*args))[1]

    for module, name in ((stage, "read_pieces"), (finish, "ColumnsWriter")):
        monkeypatch.setattr(module, name, when_both_are_there(getattr(module, name)))
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda index: run_tasks(2, index)[0], range(2)))
    assert results[0]["fingerprint"] == results[1]["fingerprint"]
    assert files_of(folder) == expected


def test_another_processor_is_refused_before_a_shard_is_written(
    tmp_path: Path, processor_dir: Path
) -> None:
    own = Path(shutil.copytree(processor_dir, tmp_path / "processor"))
    parts_dir = preprocess_23(tmp_path, own)
    (own / "tokenizer_config.json").write_text("{}")
    words = r"the processor changed since preprocess, .* by `slurm-jobs resume .* --again prep`$"
    with pytest.raises(StageConfigError, match=words):
        run_consolidate(tmp_path / "set", parts_dir, 2)
    assert not (tmp_path / "set" / "output" / "shards").exists()

"""The copy of a data set as it fills: beside readers, beside other jobs, through kills."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.shard_reading import shard_files as shards
from pipeline.stage_in import copier
from pipeline.stage_in.stage import Staged, stage_in
from pipeline.stage_in.store import Store
from slurm_jobs.base.errors import StageError, StageStoppedError
from slurm_jobs.formats.configs.training_parts import StagingConfig
from slurm_jobs.formats.dataset_folder import INDEX_NAME
from slurm_jobs.worker.hangs import describe_cause
from slurm_jobs.worker.stacks import read_stacks, request_stacks
from tests.pipeline.stage_in.conftest import BEFORE, BESIDE, shard_sizes

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
SLOW = replace(BESIDE, num_threads=1, max_mb_per_s=0.02)
"""A shard of the tests takes seconds."""


def wait_for(condition: Callable[[], T], what: str) -> T:
    """For what another process or thread does, which tells nobody."""
    deadline = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.002)
    return found


def is_copying(root: Path) -> bool:
    return bool(list(root.glob("datasets/*/shards/.*.tmp")))


def gb_of(*folders: Path) -> float:
    """That the whole copies in these folders take, as `max_gb` counts."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files) / 1e9


def test_training_reads_the_same_samples_while_shards_arrive(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_LOOK_AGAIN_S", 0.0)
    whole = open_dataset(dataset_dir)
    config = replace(BESIDE, num_threads=1, max_mb_per_s=0.2)
    with stage_in(dataset_dir, tmp_path, config) as staged:
        arriving = open_dataset(dataset_dir, staged.folder, staged.check)
        assert staged.num_local_bytes < staged.num_bytes
        while not staged.wait(0.0):
            for number in range(23):
                expected, found = whole.sample(number), arriving.sample(number)
                assert found.key == expected.key
                assert (found.input_ids == expected.input_ids).all()
        before = arriving.files.counts
        for number in range(23):
            arriving.sample(number)
        after = arriving.files.counts
    assert staged.num_local_bytes == staged.num_bytes
    assert before.shared_bytes > 0  # of shards that were not here yet
    assert after.shared_bytes == before.shared_bytes  # now everything is
    assert after.local_bytes - before.local_bytes == int(whole.index.num_bytes.sum())


def test_training_that_ends_first_stops_the_copy_and_keeps_what_is_whole(
    dataset_dir: Path, tmp_path: Path
) -> None:
    sizes = shard_sizes(dataset_dir)
    config = replace(SLOW, max_mb_per_s=sizes[0] / 1e6 / 1.5)
    with stage_in(dataset_dir, tmp_path, config) as staged:
        wait_for(lambda: staged.num_local_bytes == sizes[0], "the first shard")
        wait_for(lambda: is_copying(tmp_path), "the second shard")
    assert shard_sizes(staged.folder) == sizes[:1]
    assert not is_copying(tmp_path)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stage-in")]
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        assert shard_sizes(staged.folder) == sizes


def test_another_job_continues_the_copy_when_the_first_job_ends(
    dataset_dir: Path, tmp_path: Path
) -> None:
    first = stage_in(dataset_dir, tmp_path, SLOW)
    wait_for(lambda: is_copying(tmp_path), "the first job's copy")
    with stage_in(dataset_dir, tmp_path, BESIDE) as second:
        assert not second.copied
        first.close()
        assert second.wait(60)
        assert second.copied
        assert second.num_local_bytes == second.num_bytes


def test_an_index_lost_before_this_job_may_copy_ends_the_training(
    dataset_dir: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(dataset_dir, own)
    first = stage_in(own, tmp_path / "local", SLOW)
    wait_for(lambda: is_copying(tmp_path / "local"), "the first job's copy")
    with stage_in(own, tmp_path / "local", BESIDE) as second:
        (own / INDEX_NAME).unlink()
        (second.folder / INDEX_NAME).unlink()
        first.close()
        assert second.wait(60)
        with pytest.raises(StageError, match=INDEX_NAME):
            second.check()


def stage_until_killed(dataset_dir: Path, root: Path, config: StagingConfig) -> None:
    staged = stage_in(dataset_dir, root, config)
    staged.wait()
    multiprocessing.Event().wait()


def test_a_copy_killed_at_any_moment_is_finished_by_the_next(
    dataset_dir: Path, tmp_path: Path
) -> None:
    chance = random.Random(20)
    num_halves = 0
    for number in range(40):
        root = tmp_path / str(number)
        config = replace(BESIDE, num_threads=2, max_mb_per_s=1.0 if number % 2 else None)
        arguments = (dataset_dir, root, config)
        process = multiprocessing.get_context("fork").Process(
            target=stage_until_killed, args=arguments
        )
        process.start()
        if number % 4 == 1:
            wait_for(lambda root=root: is_copying(root), "a copy under way")
        else:
            time.sleep(chance.uniform(0.0, 0.05))
        process.kill()
        process.join()
        whole = {size for folder in root.glob("datasets/*") for size in shard_sizes(folder)}
        assert whole <= set(shard_sizes(dataset_dir))
        num_halves += is_copying(root)
        with stage_in(dataset_dir, root, BEFORE) as staged:
            assert_equal_shards(staged, dataset_dir)
    assert num_halves >= 3  # else the test would prove nothing


def assert_equal_shards(staged: Staged, dataset_dir: Path) -> None:
    assert staged.folder is not None
    found = {path.name: path.read_bytes() for path in (staged.folder / "shards").iterdir()}
    assert found == {path.name: path.read_bytes() for path in (dataset_dir / "shards").iterdir()}


def test_training_that_waits_for_its_copy_beats_within_a_shard(
    dataset_dir: Path, tmp_path: Path, last_beat: Callable[[], dict[str, Any]]
) -> None:
    first = last_beat()["beats"]
    config = replace(SLOW, mode="before", max_mb_per_s=shard_sizes(dataset_dir)[0] / 1e6 / 20)
    info = read_dataset_info(dataset_dir)
    store = Store(root=tmp_path / "node")
    with store.locked(lambda: None):
        lease = store.take(info.fingerprint)
    slow = copier.Copier(dataset_dir, store, lease, info, config)

    def copy() -> None:
        with pytest.raises(StageStoppedError):
            slow.run()

    thread = threading.Thread(target=copy)
    thread.start()
    wait_for(lambda: last_beat()["beats"] > first + 1, "beats of the first shard")
    assert slow.num_copied == 0
    slow.close()
    thread.join()
    lease.release()


def test_training_that_waits_for_the_copy_of_another_job_still_beats(
    dataset_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    last_beat: Callable[[], dict[str, Any]],
) -> None:
    monkeypatch.setattr(copier, "_TURN_POLL_S", 0.02)
    store, info = Store(root=tmp_path / "node"), read_dataset_info(dataset_dir)
    with store.locked(lambda: None):
        theirs, ours = store.take(info.fingerprint), store.take(info.fingerprint)
        assert theirs.begin_copying()
    looks = []
    look = ours.progress
    monkeypatch.setattr(ours, "progress", lambda: looks.append(look()) or looks[-1])
    waiting = copier.Copier(dataset_dir, store, ours, info, BEFORE)
    thread = threading.Thread(target=waiting.run)
    thread.start()

    def passes() -> None:
        """Wait until it has looked often enough for several beats to be due."""
        num_looks = len(looks)
        wait_for(lambda: len(looks) > num_looks + 10, "looks at the other's copy")

    passes()
    stands_still = last_beat()["beats"]
    passes()
    assert last_beat()["beats"] == stands_still
    (theirs.folder / "shards/.shard-000000.tar.1.tmp").write_bytes(b"more of it")
    wait_for(lambda: last_beat()["beats"] == stands_still + 1, "a beat for bytes that came")
    passes()
    theirs.note_progress()
    wait_for(lambda: last_beat()["beats"] == stands_still + 2, "a beat for a verified shard")
    theirs.release()
    thread.join()
    assert waiting.num_copied == info.num_shards
    ours.release()


STAGES_IN = """
import sys
from pathlib import Path
from pipeline.stage_in.stage import stage_in
from slurm_jobs.formats.configs.training_parts import StagingConfig
from slurm_jobs.worker.stacks import register_stacks
task_dir, dataset_dir, node_dir = map(Path, sys.argv[1:])
register_stacks(task_dir, 0)
stage_in(dataset_dir, node_dir, StagingConfig(mode="before"))
"""


def test_a_hanging_copy_is_reported_with_the_line_that_reads_the_file(
    dataset_dir: Path, tmp_path: Path
) -> None:
    shared = shutil.copytree(dataset_dir, tmp_path / "shared")
    shard = shared / "shards/shard-000001.tar"
    shard.unlink()
    os.mkfifo(shard)  # a read of it waits, as one of a file server that is gone
    command = [sys.executable, "-c", STAGES_IN, str(tmp_path), str(shared), str(tmp_path / "node")]

    def opened() -> int | None:
        try:
            return os.open(shard, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing reads it yet
                raise
            return None

    asked_s = -math.inf

    def cause(pid: int) -> str:
        """The sentence, once the thread waits in its read and the whole answer is written."""
        nonlocal asked_s
        if (stacks := read_stacks(tmp_path, 0)).main:
            _, text = describe_cause({0: stacks})
            if "_read_into (" in text:
                return text
        if time.monotonic() - asked_s > 1:  # two answers at once, by two threads, are unreadable
            request_stacks(tmp_path, 0, pid)
            asked_s = time.monotonic()
        return ""

    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            writer = wait_for(opened, "the copy of the shard")
            text = wait_for(lambda: cause(process.pid), "its stacks")
        finally:
            process.kill()
    os.close(writer)
    assert text.startswith("was in staging, at _read_into (")
    assert "pipeline/stage_in/verified_copy.py:" in text


def test_interrupted_verification_starts_again(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        folder = staged.folder
    (folder / "boot-id").write_bytes(b"another")
    last = folder / "shards/shard-000002.tar"
    last.write_bytes(bytes(last.stat().st_size))
    looks = []

    def stop_at_the_fourth_look() -> bool:
        looks.append(None)
        return len(looks) >= 4

    with monkeypatch.context() as patch:
        patch.setattr(copier, "stop_requested", stop_at_the_fourth_look)
        with pytest.raises(StageStoppedError):
            stage_in(dataset_dir, tmp_path, replace(BEFORE, num_threads=1))
    assert (folder / "boot-id").read_bytes() == b"another"
    with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
        assert_equal_shards(staged, dataset_dir)


def test_the_index_is_copied_once_and_again_after_damage(dataset_dir: Path, tmp_path: Path) -> None:
    files = []
    for damage in (None, b"", b"PAR1", None):
        with stage_in(dataset_dir, tmp_path, BEFORE) as staged:
            path = staged.folder / "index.arrow"
            assert path.read_bytes() == (dataset_dir / "index.arrow").read_bytes()
            files.append((path.stat().st_ino, path.stat().st_mtime_ns))
        if damage is not None:
            path.write_bytes(damage)
    first, again, mended, mended_again = files
    assert first == again != mended != mended_again


def test_an_index_damaged_in_the_shared_folder_is_left_to_its_reader(
    dataset_dir: Path, tmp_path: Path
) -> None:
    shared = shutil.copytree(dataset_dir, tmp_path / "shared")
    (shared / "index.arrow").write_bytes(b"PAR1")
    with stage_in(shared, tmp_path / "local", BEFORE) as staged:
        assert not (staged.folder / "index.arrow").exists()
        with pytest.raises(StageError, match=r"shared/index\.arrow: 4 bytes, expected "):
            open_dataset(shared, staged.folder)


def test_the_least_recently_used_copy_makes_room_under_the_cap(
    dataset_dir: Path, other_dataset_dir: Path, tmp_path: Path
) -> None:
    with stage_in(other_dataset_dir, tmp_path, BEFORE) as old:
        pass
    config = replace(BEFORE, max_gb=1.5 * gb_of(old.folder))
    with stage_in(dataset_dir, tmp_path, config) as new:
        assert new.reason == ""
        assert_equal_shards(new, dataset_dir)
    assert [path.name for path in (tmp_path / "datasets").iterdir()] == [new.folder.name]


def test_copies_in_use_are_kept_and_as_many_shards_as_fit_are_staged(
    dataset_dir: Path, other_dataset_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=stage_until_killed, args=(other_dataset_dir, tmp_path, BEFORE)
    )
    process.start()
    try:
        (used,) = [tmp_path / "datasets" / read_dataset_info(other_dataset_dir).fingerprint]
        wait_for(lambda: shard_sizes(used) == shard_sizes(other_dataset_dir), "the first copy")
        config = replace(BEFORE, max_gb=1.7 * gb_of(used))
        with stage_in(dataset_dir, tmp_path, config) as staged:
            num_here = len(shard_sizes(staged.folder))
            assert 0 < num_here < 3
            assert f"{3 - num_here} of 3 shards do not fit" in staged.reason
            assert "training reads a part of" in caplog.text
            dataset = open_dataset(dataset_dir, staged.folder, staged.check)
            keys = {dataset.sample(number).key for number in range(23)}
            assert len(keys) == 23
            assert dataset.files.counts.local_bytes > 0 < dataset.files.counts.shared_bytes
        assert shard_sizes(used) == shard_sizes(other_dataset_dir)
    finally:
        process.kill()
        process.join()


def test_training_that_gave_up_copying_keeps_no_other_job_from_it(
    dataset_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(self: copier.Copier) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "index.arrow")

    with monkeypatch.context() as full:
        full.setattr(copier.Copier, "_copy_index", no_space)
        first = stage_in(dataset_dir, tmp_path, BESIDE)
    with first:
        assert first.reason == "index.arrow: No space left on device"
        second = Store(root=tmp_path).take(read_dataset_info(dataset_dir).fingerprint)
        assert second.begin_copying()
        second.release()


def test_the_same_shards_are_staged_in_every_attempt(dataset_dir: Path, tmp_path: Path) -> None:
    config = replace(BEFORE, max_gb=gb_of(dataset_dir / "shards") * 0.8)
    found = []
    for number in range(2):
        with stage_in(dataset_dir, tmp_path / str(number), config) as staged:
            found.append(sorted(path.name for path in (staged.folder / "shards").iterdir()))
    assert found == [["shard-000000.tar", "shard-000001.tar"]] * 2


def test_index_counts_under_the_cap(dataset_dir: Path, tmp_path: Path) -> None:
    sizes = shard_sizes(dataset_dir)
    with stage_in(dataset_dir, tmp_path, replace(BEFORE, max_gb=(sum(sizes[:2]) + 100) / 1e9)) as s:
        assert shard_sizes(s.folder) == sizes[:1]
        assert gb_of(tmp_path / "datasets") <= (sum(sizes[:2]) + 100) / 1e9


def test_other_copies_make_room_on_a_full_disk(
    dataset_dir: Path, other_dataset_dir: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(65)  # 1 MB beside what is left free
    with stage_in(other_dataset_dir, disk, BEFORE) as old:
        num_bytes = sum(shard_sizes(old.folder))
    (disk / "of-somebody-else").write_bytes(bytes(10**6 - num_bytes * 3 // 2))
    with stage_in(dataset_dir, disk, BEFORE) as new:
        assert new.reason == ""
        assert_equal_shards(new, dataset_dir)
    assert not old.folder.exists()


def test_disk_that_fills_while_copying_keeps_what_is_whole(
    dataset_dir: Path, small_disk: Callable[[int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk, sizes = small_disk(65), shard_sizes(dataset_dir)
    config = replace(SLOW, max_mb_per_s=sizes[0] / 1e6 / 1.5)
    with stage_in(dataset_dir, disk, config) as staged:
        dataset = open_dataset(dataset_dir, staged.folder, staged.check)
        wait_for(lambda: staged.num_local_bytes == sizes[0], "the first shard")
        (disk / "of-somebody-else").write_bytes(bytes(shutil.disk_usage(disk).free - 500_000))
        assert staged.wait(60)
        assert "No space left on device" in staged.reason
        assert staged.reason in caplog.text
        assert shard_sizes(staged.folder) == sizes[:1] or shard_sizes(staged.folder) == sizes[:2]
        assert not is_copying(disk)
        assert len({dataset.sample(number).key for number in range(23)}) == 23


def test_two_jobs_with_different_data_do_not_plan_with_the_same_room(
    dataset_dir: Path, other_dataset_dir: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(65)
    num_bytes = sum(shard_sizes(dataset_dir))
    (disk / "of-somebody-else").write_bytes(bytes(10**6 - num_bytes * 3 // 2))
    with stage_in(other_dataset_dir, disk, SLOW) as first:
        with stage_in(dataset_dir, disk, BEFORE) as second:
            assert "do not fit" in second.reason
            assert second.num_local_bytes < second.num_bytes
        assert first.reason == ""

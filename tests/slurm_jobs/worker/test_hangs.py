"""How long an attempt may be quiet, and which rank is the cause when it is too long."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.records.heartbeat import Heartbeat, heartbeat_path, read_heartbeat
from slurm_jobs.worker import hangs
from slurm_jobs.worker.hangs import StallWatch, describe_cause, patience_s
from slurm_jobs.worker.late_exit import note_return
from slurm_jobs.worker.stacks import RankStacks, parse_stacks
from tests.slurm_jobs.worker.rank_stacks import CODE, SITE, stacks

THREADING = '  File "/usr/lib/python3.11/threading.py", line 320 in wait'
COLLECTIVE = (
    f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 3252 in all_reduce',
    f'  File "{SITE}/torch/distributed/c10d_logger.py", line 83 in wrapper',
    f'  File "{CODE}/pipeline/train/ranks/process_group.py", line 55 in sums',
    f'  File "{CODE}/pipeline/train/loop.py", line 101 in run_steps',
)
LOADER = (
    THREADING,
    '  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 451 in result',
    f'  File "{CODE}/pipeline/data/loader.py", line 44 in __next__',
    f'  File "{CODE}/pipeline/train/loop.py", line 95 in run_steps',
)
READER = (
    f'  File "{CODE}/pipeline/data/shard_reading/shard_files.py", line 88 in pread',
    '  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 58 in run',
    '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap',
)
IDLE = (
    '  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 81 in _worker',
    '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap',
)
CHECKPOINT = (
    f'  File "{SITE}/torch/distributed/checkpoint/filesystem.py", line 9 in write_data',
    f'  File "{CODE}/pipeline/train/checkpoints/saver.py", line 31 in save',
    f'  File "{CODE}/pipeline/train/loop.py", line 222 in _save',
)
MEETING = (
    f'  File "{CODE}/pipeline/train/ranks/patient_wait.py", line 55 in wait_for_all',
    f'  File "{CODE}/pipeline/train/ranks/process_group.py", line 61 in meet',
    f'  File "{CODE}/pipeline/train/training_data/staging.py", line 48 in stage_together',
)
STAGING = (
    THREADING,
    f'  File "{CODE}/pipeline/stage_in/copier.py", line 231 in _work',
    f'  File "{CODE}/pipeline/train/training_data/staging.py", line 45 in stage_together',
)
COPY = (
    f'  File "{CODE}/pipeline/stage_in/verified_copy.py", line 140 in _read_into',
    f'  File "{CODE}/pipeline/stage_in/copier.py", line 241 in _work_on_tasks',
    '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap',
)
DEVICE = (
    f'  File "{SITE}/torch/cuda/streams.py", line 252 in synchronize',
    f'  File "{CODE}/pipeline/train/verdict.py", line 51 in read',
    f'  File "{CODE}/pipeline/train/loop.py", line 310 in _read',
    f'  File "{CODE}/pipeline/train/loop.py", line 130 in run_steps',
)
FLIGHTS = (
    f'  File "{CODE}/pipeline/train/ranks/flight_recorder.py", line 38 in follow',
    '  File "/usr/lib/python3.11/threading.py", line 982 in run',
    '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap',
)
SAMPLER = (f'  File "{CODE}/pipeline/timing/sampler.py", line 60 in _run', *FLIGHTS[1:])
UPLOAD = (
    f'  File "{CODE}/pipeline/train/ranks/process_group.py", line 55 in sums',
    f'  File "{CODE}/pipeline/train/checkpoints/saver.py", line 31 in _upload',
    *FLIGHTS[1:],
)
PRODUCER = (
    THREADING,
    f'  File "{CODE}/pipeline/data/loader.py", line 70 in _produce',
    *FLIGHTS[1:],
)
DECODER = ('  File "/home/ada/decoders.py", line 7 in decode', *READER[1:])
READING = (f'  File "{CODE}/pipeline/train/loop.py", line 108 in run_steps',)
BACKWARD = (
    f'  File "{SITE}/torch/autograd/graph.py", line 841 in _engine_run_backward',
    f'  File "{CODE}/pipeline/train/loop.py", line 150 in _accumulate',
)
FROZEN = parse_stacks(
    "main thread 0x01\n\n--- stacks of process 9 at 2026-11-26 19:38:10, "
    "state D (disk sleep) in nfs_wait_bit_killable\n"
)
GONE = parse_stacks("main thread 0x01\n")
IN_LOADER = "was in the data loader, at "
PREAD, NEXT = (
    "pread (pipeline/data/shard_reading/shard_files.py:88)",
    "__next__ (pipeline/data/loader.py:44)",
)
ONE_WAITS = "; rank 1 waits in"
IN_PASS = "was in the forward or backward pass, at _engine_run_backward"
ON_DEVICE = "was in a wait for the device, at "


@pytest.mark.parametrize(
    ("ranks", "cause", "words"),
    [
        (
            [stacks(COLLECTIVE), stacks(LOADER, IDLE, READER), stacks(COLLECTIVE)],
            1,
            (
                f"{IN_LOADER}{PREAD}; ranks 0,2 wait in a collective, all_reduce called at "
                "run_steps (pipeline/train/loop.py:"
            ),
        ),
        ([stacks(LOADER, IDLE), stacks(COLLECTIVE)], 0, f"{IN_LOADER}{NEXT}{ONE_WAITS}"),
        (
            [stacks(LOADER, IDLE, FLIGHTS, SAMPLER), stacks(COLLECTIVE)],
            0,
            f"{IN_LOADER}{NEXT}{ONE_WAITS}",
        ),
        (
            [stacks(LOADER, FLIGHTS, PRODUCER, DECODER, READER), stacks(COLLECTIVE)],
            0,
            f"{IN_LOADER}{PREAD}{ONE_WAITS}",
        ),
        (
            [stacks(LOADER, FLIGHTS, PRODUCER, DECODER), stacks(COLLECTIVE)],
            0,
            f"{IN_LOADER}decode (/home/ada/decoders.py:7){ONE_WAITS}",
        ),
        ([stacks(LOADER, COPY, READER), stacks(COLLECTIVE)], 0, f"{IN_LOADER}{PREAD}{ONE_WAITS}"),
        (
            [stacks(STAGING, COPY), stacks(MEETING)],
            0,
            "was in staging, at _read_into (pipeline/stage_in/verified_copy.py:140); rank 1 waits",
        ),
        (
            [stacks(CHECKPOINT), stacks(COLLECTIVE)],
            0,
            "was in a checkpoint, at write_data (torch/distributed/checkpoint/filesystem.py:9);",
        ),
        ([stacks(COLLECTIVE), FROZEN], 1, "its process is in state D (disk sleep) in nfs_"),
        ([stacks(LOADER), GONE], 1, "did not get the request for its stacks"),
        (
            [stacks(DEVICE), stacks(COLLECTIVE)],
            0,
            f"{ON_DEVICE}read (pipeline/train/verdict.py:51); rank 1 waits",
        ),
        ([stacks(BACKWARD), stacks(LOADER, IDLE, READER)], 1, f"{IN_LOADER}pr"),
        ([stacks(READING), stacks(COLLECTIVE)], 0, f"{ON_DEVICE}run_st"),
        ([stacks(DEVICE), stacks(LOADER)], 1, "; rank 0: was in a wait for the device"),
        ([stacks(BACKWARD, COLLECTIVE), stacks(BACKWARD, IDLE)], 1, IN_PASS),
        ([stacks(COLLECTIVE), stacks(BACKWARD, FLIGHTS, UPLOAD)], 1, IN_PASS),
        (
            [stacks(COLLECTIVE), stacks((*COLLECTIVE[:2], CHECKPOINT[1])), stacks(COLLECTIVE)],
            1,
            (
                "was in a collective, all_reduce called at save "
                "(pipeline/train/checkpoints/saver.py:31); ranks 0,2 wait in a "
                "collective, all_reduce called at run_steps"
            ),
        ),
        ([stacks(CHECKPOINT)] * 3, 0, "filesystem.py:9) (as are ranks 1-2)"),
        ([stacks(())], 0, "did not answer the request"),
    ],
)
def test_the_rank_that_is_in_no_collective_is_the_cause(
    ranks: list[RankStacks], cause: int, words: str
) -> None:
    rank, text = describe_cause(dict(enumerate(ranks)))
    assert rank == cause
    assert words in text


@pytest.mark.parametrize(
    "name", ["layouts.py", "lib.zip/pipeline/layouts.py", "in/lib.zip/user/layouts.py"]
)
def test_a_rank_that_reads_from_the_device_is_not_blamed_for_one_asleep(
    name: str, tmp_path: Path
) -> None:
    text = "def arrange(sizes):\n    return sizes.tolist()\n"
    for path in (tmp_path / "layouts.py", tmp_path / "in" / "lib.zip" / "user" / "layouts.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as library:
        library.writestr("pipeline/layouts.py", text)
    source = tmp_path / name
    reads = f'  File "{source}", line 2 in arrange'
    sleeps = f'  File "{source}", line 1 in arrange'
    step = f'  File "{CODE}/pipeline/train/loop.py", line 150 in _accumulate'
    rank, text = describe_cause({0: stacks((reads, step)), 1: stacks((sleeps, step))})
    assert rank == 1
    assert "was in the forward or backward pass, at arrange" in text
    assert "; rank 0: was in a wait for the device, at arrange" in text


def beat_of(**values: Any) -> dict[str, Any]:
    said = {"doing": "steps", "steps": 50, "median_step_s": 1.0, "longest_step_s": 2.0}
    return {**said, "stall_s": 60.0, "collective_s": 600.0, **values}


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 60),
        ({"median_step_s": 20.0}, 200),
        ({"longest_step_s": 100.0}, 300),
        ({"steps": 2}, 240),
        ({"steps": 2, "longest_step_s": 100.0}, 300),
        ({"doing": "export"}, 240),
        ({"doing": "export", "longest_step_s": 100.0}, 300),
        ({"doing": "evaluation"}, 240),
        ({"doing": "checkpoint"}, 240),
    ],
)
def test_the_patience_grows_with_the_steps_and_outside_of_them(
    values: dict[str, Any], seconds: float
) -> None:
    assert patience_s(beat_of(**values)) == seconds


class Watch:
    """A watch over an attempt, and the clock that it reads, which the test moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, num_ranks: int) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(hangs.time, "monotonic", lambda: self.now_s)
        self.watch = StallWatch(folder, num_ranks)

    def run(self, seconds: float, *, may_end: bool = True) -> list[str]:
        """Tick as often as the supervisor does; the alarms."""
        alarms = []
        for _ in range(int(seconds / 0.5)):
            self.now_s += 0.5
            alarms.append(self.watch.tick(may_end=may_end))
        return [alarm for alarm in alarms if alarm]


WatchOf = Callable[[int], Watch]


@pytest.fixture
def watch_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchOf:
    return lambda num_ranks: Watch(tmp_path, monkeypatch, num_ranks)


@pytest.fixture
def beating(tmp_path: Path) -> Callable[..., None]:
    """Writes a beat of a rank that has made so many steps."""
    hearts: dict[int, Heartbeat] = {}

    def beat(rank: int, num_steps: int = 0) -> None:
        if rank not in hearts:
            path = heartbeat_path(tmp_path, rank)
            hearts[rank] = Heartbeat(path, stall_s=60, collective_s=50)
        heart = hearts[rank]
        for _ in range(num_steps):
            heart.step_done(0.1)
        heart.begin("steps")

    return beat


def test_a_beat_of_any_rank_is_progress_and_its_end_an_alarm(
    watch_of: WatchOf, beating: Callable[..., None]
) -> None:
    watch = watch_of(2)
    assert watch.run(1000) == []  # no rank has begun: the scheduler starts them
    for rank in (0, 1, 1, 1, 1):
        beating(rank, num_steps=5)
        assert watch.run(39) == []
        assert not watch.watch.has_dumped
    assert watch.run(10) == ["dump"]  # before collectives time out
    assert watch.watch.has_dumped
    beating(0)
    assert watch.run(30) == []
    assert not watch.watch.has_dumped
    assert watch.run(39)[:2] == ["dump", "end"]


def test_the_first_steps_of_a_phase_may_take_as_long_as_the_first_of_all(
    tmp_path: Path,
) -> None:
    heart = Heartbeat(heartbeat_path(tmp_path, 0), stall_s=60, collective_s=50)
    patiences = []
    for num_steps in (0, 5, 0, 2, 1):
        if num_steps == 0:
            heart.steps_change()
        for _ in range(num_steps):
            heart.step_done(0.1)
        heart.begin("steps")
        beat = read_heartbeat(tmp_path, 0)
        assert beat is not None
        patiences.append(patience_s(beat))
    assert patiences == [240, 60, 240, 240, 60]


def test_many_ranks_that_stop_together_are_late_after_one_patience(
    watch_of: WatchOf, beating: Callable[..., None]
) -> None:
    watch = watch_of(40)
    for number in (1, 2):
        for rank in range(40):
            beating(rank, num_steps=5 * number)
        assert watch.run(10) == []
    assert watch.run(61)[:2] == ["dump", "end"]


def test_a_job_that_was_suspended_is_not_late(
    watch_of: WatchOf, beating: Callable[..., None]
) -> None:
    watch = watch_of(1)
    beating(0, num_steps=5)
    assert watch.run(30) == []
    watch.now_s += 100_000
    assert watch.run(20) == []


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_attempt_that_may_not_be_ended_writes_its_stacks_once(
    watch_of: WatchOf, beating: Callable[..., None], num_ranks: int
) -> None:
    watch = watch_of(num_ranks)
    beating(0, num_steps=5)
    assert watch.run(300, may_end=False) == ["dump"]
    beating(0)
    assert watch.run(300, may_end=False) == ["dump"]


def test_all_ranks_are_read_seldom_until_the_first_beats(
    watch_of: WatchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(hangs, "read_heartbeat", lambda _folder, rank: looks.append(rank))
    watch_of(10).run(300)
    assert 250 < looks.count(0) < 350
    assert 50 < looks.count(9) < 70


def test_ranks_whose_function_has_returned_are_left_to_their_exit(
    tmp_path: Path, watch_of: WatchOf, beating: Callable[..., None]
) -> None:
    watch = watch_of(1)
    beating(0, num_steps=5)
    note_return(tmp_path, 0, 0, 1.0)
    assert watch.run(500) == []

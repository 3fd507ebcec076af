"""The thread that takes readings of a node's load, with sources that a test makes."""

import logging
import os
import threading

import pytest

from pipeline.timing import sampler as sampler_module
from pipeline.timing.sampler import Sources, SystemSampler, find_sources, sample_system
from slurm_jobs.formats.configs.training_parts import SamplerConfig
from slurm_jobs.formats.timings import read_system
from slurm_jobs.formats.timings.system_readings import system_path
from tests.contexts import make_context
from tests.pipeline.timing.test_recorder import full_disk

PATIENCE_S = 30


class Beat:
    """A source that counts its readings, and says when it was read so often."""

    def __init__(self, enough=1):
        self.num, self.enough, self.has_enough = 0, enough, threading.Event()
        self.error = None

    def read(self, interval_s):
        self.num += 1
        if self.num >= self.enough:
            self.has_enough.set()
        if self.error is not None:
            raise self.error
        return {"cpu_busy_share": self.num / 100}


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def monotonic(self):
        return self.now_s

    def now(self):
        return 1.7e9 + self.now_s


def make(path, source, *, every_s=1.0, gpus=None, **options):
    def read(interval_s):
        return source.read(interval_s)  # which a test may replace

    sources = Sources(host={"beat": read}, gpus=gpus, metadata={"gpus": []})
    return SystemSampler(path, sources, every_s=every_s, metadata={"node_name": "n1"}, **options)


@pytest.fixture
def path(tmp_path):
    return system_path(tmp_path, 3)


def test_a_reading_says_when_it_was_and_over_which_time(path):
    clock = Clock()
    sampler = make(path, Beat(), monotonic=clock.monotonic, now=clock.now)
    for interval_s in (1.0, 2.5):
        clock.now_s += interval_s
        sampler.take()
    file = read_system(path)
    assert file.readings["interval_s"].tolist() == [1.0, 2.5]
    assert file.readings["unix_s"].tolist() == [1.7e9 + 101, 1.7e9 + 103.5]
    assert file.readings["cpu_busy_share"].tolist() == pytest.approx([0.02, 0.03])
    assert (file.metadata["node_name"], file.metadata["every_s"]) == ("n1", 1.0)


def test_the_thread_reads_again_and_again_and_ends_with_the_block(path):
    beat = Beat(enough=5)
    with make(path, beat, every_s=1e-3) as sampler:
        assert beat.has_enough.wait(PATIENCE_S)
    assert not sampler._thread.is_alive()
    assert len(read_system(path).readings) >= 4  # the first reading is what counters grow from


def test_the_end_waits_for_no_interval_and_a_short_block_has_its_reading(path):
    clock = Clock()
    with make(path, Beat(), every_s=1e6, monotonic=clock.monotonic) as sampler:
        clock.now_s += 0.5e6
    assert not sampler._thread.is_alive()
    assert read_system(path).readings["interval_s"].tolist() == [0.5e6]


def test_an_error_of_the_training_is_raised_and_ends_the_sampler(path):
    sampler = make(path, Beat(), every_s=1e6)
    with pytest.raises(ValueError, match="the loss"), sampler:
        raise ValueError("the loss")
    assert not sampler._thread.is_alive()


def test_a_source_that_fails_is_nan_and_reported_once_and_the_others_go_on(path, caplog):
    bad, good = Beat(), Beat()
    sources = Sources(host={"disks": bad.read, "processor": good.read}, gpus=None, metadata={})
    sampler = SystemSampler(path, sources, every_s=1.0, metadata={})
    bad.error = OSError("gone")
    for _ in range(3):
        sampler.take()
    file = read_system(path)
    assert file.readings["cpu_busy_share"].tolist() == pytest.approx([0.02, 0.03, 0.04])
    assert [record.message for record in caplog.records] == ["system readings lack disks: gone"]


def test_an_unexpected_error_ends_the_readings_and_not_the_training(path, caplog):
    beat = Beat(enough=2)
    with make(path, beat, every_s=1e-3) as sampler:
        beat.error = RuntimeError("unheard of")
        assert beat.has_enough.wait(PATIENCE_S)
        sampler._thread.join(PATIENCE_S)
        assert not sampler._thread.is_alive()
    assert "system readings end here" in caplog.text
    assert "unheard of" in caplog.text


def test_a_full_disk_loses_readings_until_there_is_room_again(path, caplog):
    sampler = make(path, Beat())
    sampler.take()
    with full_disk(path, num_bytes_left=20):
        sampler.take()
        sampler.take()
    sampler.take()
    file = read_system(path)
    assert file.readings["number"].tolist() == [1, 2]
    assert file.readings["cpu_busy_share"].tolist() == pytest.approx([0.02, 0.05])
    assert len([r for r in caplog.records if "system readings are lost" in r.message]) == 1


def test_a_reading_that_hangs_does_not_hold_the_training_up(path, caplog, monkeypatch):
    monkeypatch.setattr(sampler_module, "_JOIN_S", 0.01)
    beat, let_go = Beat(enough=2), threading.Event()
    sampler = make(path, beat, every_s=1e-3)
    beat.read = lambda interval_s: beat.has_enough.set() or let_go.wait(PATIENCE_S) or {}
    with sampler:
        assert beat.has_enough.wait(PATIENCE_S)
    assert "hangs" in caplog.text
    let_go.set()
    sampler._thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("every_s", "local_rank", "files"),
    [(60.0, 0, ["node-00002.system"]), (60.0, 1, []), (None, 0, [])],
)
def test_the_first_rank_of_each_node_reads_it(tmp_path, every_s, local_rank, files):
    context = make_context("train", tmp_path, node_rank=2, local_rank=local_rank)
    with sample_system(SamplerConfig(every_s=every_s), context):
        pass
    assert [path.name for path in context.timing_dir.iterdir()] == files


def test_a_training_goes_on_where_readings_cannot_begin(tmp_path, caplog):
    context = make_context("train", tmp_path)
    system_path(context.timing_dir, 0).touch()  # another process has it
    with sample_system(SamplerConfig(), context):
        went_on = True
    assert went_on
    assert "no system readings of this node" in caplog.text
    assert system_path(context.timing_dir, 0).read_bytes() == b""


def test_this_machine_is_read_and_nothing_is_missed(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    sources = find_sources(tmp_path, {"CUDA_VISIBLE_DEVICES": ""})
    path = tmp_path / "x.system"
    sampler = SystemSampler(path, sources, every_s=1.0, metadata={})
    for _ in range(2):  # rates need two
        sampler.take()
    last = read_system(path).readings[-1]
    assert last["memory_available_bytes"] > 1e6
    assert last["job_resident_bytes"] > 1e6
    assert last["network_receive_bytes_per_s"] >= 0
    assert set(read_system(path).metadata["cores"]) >= os.sched_getaffinity(0)
    assert not caplog.records


def test_a_sampler_faster_than_ten_a_second_is_refused():
    with pytest.raises(ValueError, match=r"every_s is 0\.01"):
        SamplerConfig(every_s=0.01)

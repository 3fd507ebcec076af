"""What a job makes of a ledger whose listing is old. The clock and the listing are the test's own:
no NFS client that caches can be had here."""

import json
import time as time_module
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.run_folder import ledger
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker import supervisor
from slurm_jobs.worker.job_identity import JobEnvironment
from slurm_jobs.worker.supervisor import LISTING_PATIENCE_S, own_intent
from tests.slurm_jobs.worker.orders import environment, order

INTENT = {
    "stage": "s",
    "slices": "3",
    "is_array": True,
    "fingerprint": "f",
    "job_name": "n",
    "base_attempts": {},
}


class Clock:
    """Time passes by sleeping alone; after `hidden_s` the folder shows what is in it."""

    def __init__(self, hidden_s: float) -> None:
        self.now_s, self.hidden_s = 100.0, 100.0 + hidden_s

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic
    strftime = staticmethod(time_module.strftime)
    gmtime = staticmethod(time_module.gmtime)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run with job `t`, which is to work on slice 3."""
    found = RunPaths(tmp_path)
    append_entry(found.ledger_dir, "begin", "c", {})
    append_entry(found.ledger_dir, "intent", "t", INTENT)
    found.job_dir("t").mkdir(parents=True)
    write_json_atomic(found.job_json("t"), order_to_json(order(tmp_path, is_array=True)))
    return found


def hide(monkeypatch: pytest.MonkeyPatch, hidden_s: float) -> Clock:
    clock, last = Clock(hidden_s), ledger.last_number
    monkeypatch.setattr(supervisor, "time", clock)

    def listed(folder: Path) -> int:
        return last(folder) if clock.now_s >= clock.hidden_s else 1

    monkeypatch.setattr(ledger, "last_number", listed)
    return clock


@pytest.mark.parametrize("hidden_s", [0.0, 7.0, LISTING_PATIENCE_S])
def test_a_job_looks_for_its_intent_as_long_as_nfs_may_hide_it(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, hidden_s: float
) -> None:
    clock = hide(monkeypatch, hidden_s)
    found = own_intent(paths, "t")
    assert found is not None
    assert found.number == 2
    assert clock.now_s - clock.hidden_s < 3.0


def test_a_job_that_never_sees_its_intent_fails_and_is_not_superseded(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = hide(monkeypatch, 3600.0)
    monkeypatch.setattr(supervisor, "read_environment", read_environment)
    assert supervisor.supervise(paths.run_dir, "t") == 1
    assert LISTING_PATIENCE_S <= clock.now_s - 100.0 < LISTING_PATIENCE_S + 3.0
    (record,) = paths.completions_dir("s").iterdir()
    assert record.name == "s00003.a0001.t.failed.json"
    assert f"own entry in {paths.ledger_dir}" in json.loads(record.read_bytes())["reason"]


def read_environment(*_: object) -> JobEnvironment:
    return environment("n1")


def test_an_intent_that_was_seen_once_is_not_lost_from_sight_again(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_intent(paths, "t")
    environment_ = environment("n1")
    read = supervisor.read_order(paths.job_json("t"))
    (task,) = supervisor.slice_tasks(read, paths, environment_, own)
    hide(monkeypatch, 3600.0)
    assert not supervisor._is_superseded(task)


def test_a_job_whose_slice_a_later_one_has_is_superseded(paths: RunPaths) -> None:
    own = own_intent(paths, "t")
    read = supervisor.read_order(paths.job_json("t"))
    (task,) = supervisor.slice_tasks(read, paths, environment("n1"), own)
    assert not supervisor._is_superseded(task)
    append_entry(paths.ledger_dir, "intent", "u", INTENT)
    assert supervisor._is_superseded(task)

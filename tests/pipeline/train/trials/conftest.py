"""Planted memory, and the peaks of a training where there is enough of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from pipeline.train.memory import measured_memory
from pipeline.train.memory.host_memory import HostMemory

SHARE = 0.9
SIZES = {"global_batch_size": 32, "num_lanes": 4, "num_steps": 2}
AUTO = {**SIZES, "num_microbatches": "auto", "memory_share": SHARE}


class Memory:
    """What the machine says, planted: else a test would depend on what else the process holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._patch.setattr(measured_memory, "resident_bytes", lambda: 0)
        self.plant(1 << 40)

    def plant(self, num_bytes: float) -> None:
        memory = HostMemory(limit_bytes=num_bytes, source="test", available_bytes=num_bytes)
        self._patch.setattr(measured_memory, "read_host_memory", lambda _variables: memory)


@pytest.fixture
def memory(monkeypatch):
    return Memory(monkeypatch)


@pytest.fixture(scope="session")
def peaks(make_train_run):
    """By rows of a microbatch, where there is memory for all of them."""
    with pytest.MonkeyPatch.context() as patch:
        Memory(patch)
        run = make_train_run(**AUTO)
        run.output_dir.mkdir()
        (run.output_dir / "microbatches.json").write_text('{"shuffled": 3}')
        run.run_here()
    choice = choice_of(run)
    return SimpleNamespace(
        choice=choice, of_rows={int(rows): peak for rows, peak in choice["tried"].items()}
    )


def choice_of(run, kind="shuffled"):
    return json.loads((run.output_dir / "microbatches.json").read_text())[kind]


def numbers_of(run):
    return set(run.steps()["num_microbatches"].tolist())


def room_for(peaks, rows):
    """So much memory that the share is a bit more than so many rows take."""
    more = min((peak for other, peak in peaks.of_rows.items() if other > rows), default=None)
    here = peaks.of_rows[rows]
    return (here + (0.1 * (more - here) if more else 1)) / SHARE

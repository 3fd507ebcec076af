"""`num_microbatches: auto` on one rank, with a planted amount of memory; two: see `strategies`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from pipeline.train.memory import measured_memory
from pipeline.train.memory.host_memory import HostMemory
from slurm_jobs.base.errors import StageConfigError

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


@pytest.fixture(scope="module")
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


def test_one_microbatch_is_used_if_all_rows_fit_in_memory(peaks):
    assert peaks.choice["key"]["devices"]
    assert (peaks.choice["num_microbatches"], peaks.choice["num_rows"]) == (1, 32)
    assert sorted(peaks.of_rows) == [1, 2, 4, 8, 16, 32]
    rising = [peaks.of_rows[rows] for rows in (1, 2, 4, 8, 16)]
    assert rising == sorted(rising)
    assert peaks.of_rows[16] > 2 * peaks.of_rows[1]


@pytest.mark.parametrize("rows", [1, 8])
def test_the_number_is_the_smallest_that_fits(peaks, memory, make_train_run, rows, caplog):
    memory.plant(room_for(peaks, rows))
    run = make_train_run(**AUTO)
    with caplog.at_level("INFO"):
        run.run_here()
    choice = choice_of(run)
    assert (choice["num_microbatches"], choice["num_rows"]) == (32 // rows, rows)
    assert numbers_of(run) == {32 // rows}
    assert max(map(int, choice["tried"])) <= 2 * rows, "no more is tried than may fit"
    counted = {1: "32 microbatches of 1 row", 8: "4 microbatches of 8 rows"}[rows]
    assert f"num_microbatches: auto takes {counted} a step on each rank" in caplog.text
    (noted,) = run.spans("microbatch_search")
    assert noted["num_microbatches"] == 32 // rows


def test_what_is_learned_is_bit_for_bit_that_of_the_number_given_by_hand(
    peaks, memory, make_train_run
):
    memory.plant(room_for(peaks, 8))
    dropout = {"adapters": {"rank": 4, "alpha": 8.0, "dropout": 0.5}}
    found, given = make_train_run(**AUTO, **dropout), make_train_run(**SIZES, **dropout)
    torch.manual_seed(0)  # as in a process of its own
    found.run_here()
    number = choice_of(found)["num_microbatches"]
    assert number > 1
    torch.manual_seed(0)
    given.run_here(num_microbatches=number)
    assert found.losses() == given.losses()
    assert found.weights() == given.weights()


@pytest.mark.slow
def test_a_resume_keeps_the_number_found_unless_the_device_changes(
    peaks, memory, make_train_run, caplog
):
    memory.plant(room_for(peaks, 8))
    run = make_train_run(**AUTO, checkpoint={"every_min": None, "every_steps": 1})
    run.run_here()
    file = run.output_dir / "microbatches.json"
    kept = json.loads(file.read_text())
    kept["shuffled"]["num_microbatches"] = 16
    file.write_text(json.dumps(kept))
    run.forget(1)
    with caplog.at_level("INFO"):
        assert run.run_here()["resumed_from_step"] == 1
    assert "num_microbatches: auto takes 16, as an earlier attempt found" in caplog.text
    assert numbers_of(run) == {16}
    run.forget(1)
    run.run_here(activation_checkpointing=True)  # another use of memory
    assert 16 not in numbers_of(run)
    run.forget(1)
    memory.plant(1 << 40)
    run.run_here()
    assert numbers_of(run) == {1}


def test_no_room_for_a_row_fails_before_the_first_step_with_remedies(peaks, memory, make_train_run):
    memory.plant(0.9 * peaks.of_rows[1])
    run = make_train_run(**AUTO)
    words = r"a single row .* memory_share \(0\.9\) .*fsdp2.*adapters.*adamw_8bit.*memory_share"
    with pytest.raises(StageConfigError, match=words):
        run.run_here()
    assert not (run.output_dir / "checkpoints").exists()


def test_each_kind_of_batching_is_tried_with_its_own_number(memory, make_train_run):
    batching = {"kind": "auto", "max_tokens": 160}
    run = make_train_run(**AUTO, batching=batching)
    run.run_here()
    kind = json.loads((run.output_dir / "batching.json").read_text())["kind"]
    assert choice_of(run, "grouped")["num_rows"] == 32
    assert choice_of(run, "packed")["num_rows"] < 32  # of several samples
    assert numbers_of(run) == {choice_of(run, kind)["num_microbatches"]}
    same = make_train_run(**SIZES, batching={**batching, "kind": kind})
    same.run_here(num_microbatches=choice_of(run, kind)["num_microbatches"])
    assert run.losses() == same.losses()
    of_one_row = [choice_of(run, name)["tried"]["1"] for name in ("grouped", "packed")]
    assert of_one_row[0] < of_one_row[1]
    memory.plant(sum(of_one_row) / 2 / SHARE)
    narrow = make_train_run(**AUTO, batching=batching)
    narrow.run_here()
    assert json.loads((narrow.output_dir / "batching.json").read_text())["kind"] == "grouped"


def test_each_phase_has_a_number_of_its_own(peaks, memory, make_train_run):
    memory.plant(room_for(peaks, 8))
    phases = [
        {"name": "first", "num_steps": 1},
        {"name": "second", "num_steps": 1, "global_batch_size": 4},
    ]
    run = make_train_run(**{**AUTO, "num_steps": None}, phases=phases)
    run.run_here()
    folders = [run.output_dir / "phases" / name for name in ("0-first", "1-second")]
    files = [folder / "microbatches.json" for folder in folders]
    found = [json.loads(file.read_text())["shuffled"] for file in files]
    assert [choice["num_microbatches"] for choice in found] == [4, 1]

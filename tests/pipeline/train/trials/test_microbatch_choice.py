"""`num_microbatches: auto` on one rank, with a planted amount of memory; two: see `strategies`."""

from __future__ import annotations

import json

import pytest
import torch

from tests.pipeline.train.trials.conftest import AUTO, SHARE, SIZES, choice_of, numbers_of, room_for


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

"""Requests to stop after the last step: agreed on by all ranks, and never repeated for ever."""

import itertools
import json
import math
import time
from dataclasses import replace

import pytest

from pipeline.stopping import AttemptProgress
from pipeline.train import ending
from pipeline.train.checkpoints.checkpoint_folders import list_checkpoints
from pipeline.train.ending import TimeLimitError, answer_after_steps
from slurm_jobs.base.errors import STOPPED_EXIT_CODE, StageStoppedError
from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL
from tests.pipeline.train.conftest import run_ranks

# Two minutes before the end of an hour; half of the held-out samples took twenty minutes.
SLOW = AttemptProgress(
    num_done=50, num_total=100, spent_s=1200, late_s=0, elapsed_s=3480, left_s=120
)
FITTING = replace(SLOW, num_done=95)
HOPELESS = replace(SLOW, num_done=0)
EARLY = replace(SLOW, elapsed_s=600, spent_s=300, left_s=3000)
EITHER = (False, True)


@pytest.mark.parametrize(
    ("paces", "made_steps", "must_end", "answer"),
    [
        # What does not fit is left to the next attempt by one that made steps, and given up by
        # one that had all its time for it.
        (
            (SLOW, HOPELESS, replace(SLOW, left_s=None), replace(HOPELESS, elapsed_s=5)),
            (True,),
            EITHER,
            "stop",
        ),
        ((SLOW, HOPELESS), (False,), EITHER, "give_up"),
        # What fits in the time left is finished unless SIGTERM came.
        ((FITTING,), EITHER, (False,), "go_on"),
        ((FITTING,), EITHER, (True,), "stop"),
        # Far from the time limit a stop is a preemption.
        ((EARLY,), EITHER, (False,), "stop"),
    ],
    ids=["steps were made", "no step was made", "it fits", "SIGTERM", "preempted"],
)
def test_what_an_attempt_does_after_its_steps_when_it_is_asked_to_stop(
    paces, made_steps, must_end, answer
):
    for pace, made, must in itertools.product(paces, made_steps, must_end):
        assert answer_after_steps(pace, made_steps=made, must_end=must) == answer


RANK = """
import itertools, sys
from pathlib import Path
from pipeline.train import ending
from pipeline.train.ending import Ending
from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from slurm_jobs.base.errors import StageStoppedError
from tests.contexts import make_context

rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
context = make_context("train", folder, rank=rank, num_ranks=2, main_port=port)
ranks = join_ranks(context, device_type="cpu", timeout_min=0.5)
batches = [["a"], ["b", "c"]] if rank == 0 else [["d"], ["e"], ["f"], ["g"], ["h"]]
ends = Ending(ranks, context, began_unix_s=0.0, made_steps=True)
assert list(ends.between(batches, "samples")) == batches
assert list(ends.between([], "samples")) == []

calls = itertools.count(1)
ending.stop_requested = lambda: rank == 1 and next(calls) >= 5  # rank 0 has none left by then
taken = []
try:
    taken.extend(ends.between(batches, "samples"))
except StageStoppedError as error:
    assert "7 of 8 samples were done" in str(error), error
    leave_ranks()
    sys.exit(75)
"""


def test_stop_that_one_rank_hears_of_stops_ranks_with_fewer_batches_too(tmp_path):
    assert run_ranks(["-c", RANK], 2, str(tmp_path)) == [STOPPED_EXIT_CODE] * 2


@pytest.fixture
def ask_at(monkeypatch):
    """Asks to stop from the so many-th look on, counted anew by each call; None: never."""

    def ask(look):
        looks = itertools.count(1)
        monkeypatch.setattr(ending, "stop_requested", lambda: next(looks) >= (look or math.inf))

    return ask


@pytest.fixture
def evaluated_run(make_train_run, heldout):
    """Three batches of two held-out samples, which come after two looks at the flag."""
    return make_train_run(evaluate={"manifest": heldout, "max_new_tokens": 2, "batch_size": 2})


def test_stop_in_the_last_step_leaves_the_export_to_the_next_attempt(plain, evaluated_run, ask_at):
    ask_at(1)
    with pytest.raises(StageStoppedError, match="asked to stop after the last step: its state is"):
        evaluated_run.run_here()
    assert not (evaluated_run.output_dir / "model").exists()
    ask_at(None)
    result = evaluated_run.run_here()
    assert result["resumed_from_step"] == result["num_steps"] == 6
    assert result["evaluation"]["num_samples"] == 6
    assert len(evaluated_run.steps()) == 0
    assert evaluated_run.weights() == plain.weights()


def test_stop_during_the_last_work_there_is_comes_too_late_to_be_heeded(
    make_train_run, plain, ask_at
):
    ask_at(2)
    assert make_train_run().take(plain, forget_after=5).run_here()["num_steps"] == 6


@pytest.mark.parametrize(("look", "num_done"), [(2, "0 of 1 evaluations"), (4, "2 of 6 held-out")])
def test_a_stopped_evaluation_restarts_but_fails_if_time_is_too_short(
    evaluated_run, plain, ask_at, look, num_done
):
    evaluated_run.take(plain, forget_after=5)
    ask_at(look)
    at_its_limit = {"deadline_unix_s": time.time()}
    with pytest.raises(StageStoppedError, match=f"{num_done}.* were done, and the next attempt"):
        evaluated_run.run_here(at_its_limit)
    ask_at(look)
    with pytest.raises(TimeLimitError, match=f"too short: {num_done}.*raise resources.timeout_min"):
        evaluated_run.run_here(at_its_limit)
    assert not (evaluated_run.output_dir / "evaluation.json").exists()
    ask_at(look)
    in_time = {"deadline_unix_s": time.time() + 120}
    assert evaluated_run.run_here(in_time)["evaluation"]["num_samples"] == 6


def long_manifest(demo_data, folder):
    """All the held-out rows ten times over."""
    lines = (demo_data / "render/heldout.jsonl").read_text().splitlines()
    rows = [json.loads(line) | {"id": f"{n}"} for n, line in enumerate(lines * 10)]
    path = folder / "heldout.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.slow
def test_stop_signal_on_one_rank_ends_the_evaluation_on_both(make_train_run, demo_data, tmp_path):
    evaluate = {
        "manifest": long_manifest(demo_data, tmp_path),
        "image_root": str(demo_data / "render"),
        "batch_size": 1,
    }
    run = make_train_run(evaluate=evaluate)
    processes = run.start()
    deadline = time.monotonic() + 300
    while not (run.output_dir / "model").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    processes[1].send_signal(RELAY_SIGNAL)
    ends = run.finish(processes)
    assert [code for code, _ in ends] == [STOPPED_EXIT_CODE] * 2, ends
    assert all("StageStoppedError: asked to stop after the last step" in said for _, said in ends)
    assert [step for step, _ in list_checkpoints(run.output_dir / "checkpoints")] == [6]
    less = {**evaluate, "num_samples": 4, "max_new_tokens": 2}
    assert run.run_here(evaluate=less)["resumed_from_step"] == 6

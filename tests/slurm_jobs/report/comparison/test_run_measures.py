"""What is read of a run's training: speeds without what is set apart."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.formats.timings.system_readings import ReadingPacker, system_path
from slurm_jobs.report.comparison.run_measures import measure
from tests.slurm_jobs.report.builders import change_steps, edited, write_operators
from tests.slurm_jobs.report.comparison.measured_folder import folder, paths

__all__ = ["folder", "paths"]


@pytest.fixture
def resumed(run_of):
    """A run whose training has two attempts."""
    return run_of()[0]


def test_hours_of_ranks_are_those_of_the_steps_where_a_clock_was_set_back(paths, folder):
    def set_back(steps):
        steps["start_unix_s"][200:] -= 36_000

    right = measure(paths.run_dir).rank_hours
    change_steps(folder, set_back)
    assert 0 < measure(paths.run_dir).rank_hours == pytest.approx(right)


def test_cards_and_their_memory_come_from_the_nodes_readings(paths, folder):
    assert measure(paths.run_dir).memory_capacity_bytes is None
    for node, size in enumerate((16e9, 15e9)):
        gpus = [{"uuid": "a", "name": "Tesla V100", "memory_bytes": size}]
        system_path(folder, node).write_bytes(ReadingPacker(1).header({"gpus": gpus}))
    system_path(folder, 2).write_text("damaged")
    found = measure(paths.run_dir)
    assert found.cards == ("Tesla V100",)
    assert found.memory_capacity_bytes == 15e9


def test_phases_have_their_shares_of_the_measured_steps(paths, folder):
    phases = [{"name": "projector", "first_step": 0}, {"name": "lora", "first_step": 202}]
    change_steps(folder, phases=phases)
    found = measure(paths.run_dir).phase_shares
    assert found == pytest.approx({"projector": 197 / 395, "lora": 198 / 395})


def test_unreadable_steps_are_noted(paths, folder):
    def lose_one(steps):
        steps[300] = np.zeros((), steps.dtype)

    change_steps(folder, lose_one, ranks=[1])
    found = measure(paths.run_dir)
    assert found.num_steps == 295
    assert any("left out, from the first damaged one on" in note for note in found.notes)
    assert any("unequal numbers of steps" in note for note in found.notes)


@pytest.mark.parametrize(("planned", "is_noted"), [(1100, True), (400, False), (None, False)])
def test_missing_steps_are_counted(paths, folder, planned, is_noted):
    change_steps(folder, num_steps=planned)
    notes = measure(paths.run_dir).notes
    assert any("400 of 1,100 steps were made" in note for note in notes) is is_noted


def of_earlier_config(paths):
    with edited(paths.attempt("train", 0, 1)) as record:
        record["fingerprint"] = "earlier"


def test_repeated_steps_count_once(resumed):
    assert measure(resumed.run_dir).num_steps == 400 - 2 * 5


def test_steps_of_an_earlier_config_are_left_out_and_noted(resumed):
    of_earlier_config(resumed)
    found = measure(resumed.run_dir)
    assert found.num_steps == 400 - 150 - 5
    told = "170 steps of an earlier config or code left out"
    assert any(told in note for note in found.notes), found.notes


def profile(paths, attempt, exposed_s):
    times = {"communication_s": 0.5, "exposed_communication_s": exposed_s}
    write_operators(paths.timing_dir("train", 0, attempt), 0, num_steps=8, wall_s=2.0, **times)


def test_profiles_are_of_the_attempts_whose_speed_is_reported(resumed):
    assert measure(resumed.run_dir).exposed is None
    profile(resumed, 1, 0.4)
    profile(resumed, 2, 0.1)
    found = measure(resumed.run_dir).exposed
    assert (found.attempt, found.share, found.communication_share) == (2, 0.05, 0.25)


def test_a_profile_of_an_earlier_config_is_not_this_ones(resumed):
    profile(resumed, 1, 0.4)
    of_earlier_config(resumed)
    assert measure(resumed.run_dir).exposed is None


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        ({"warmup_steps": 1000}, "no step of all its ranks is left after the first 1000"),
        ({"stage": "other"}, "no step records of stage other; it has those of train"),
    ],
)
def test_steps_that_a_run_does_not_have_are_refused(paths, wanted, refusal):
    with pytest.raises(InputError, match=refusal):
        measure(paths.run_dir, **wanted)


def test_records_that_count_no_samples_are_refused(paths, folder):
    def uncount(steps):
        steps["num_samples"] = 0

    change_steps(folder, uncount)
    with pytest.raises(InputError, match="its records count no samples"):
        measure(paths.run_dir)


def test_a_run_without_a_training_is_refused_with_the_command_to_type(paths):
    moved = paths.run_dir.rename(paths.run_dir.with_name("my run"))
    shutil.rmtree(moved / "timing" / "train")
    with pytest.raises(InputError) as refused:
        measure(moved)
    assert str(refused.value).endswith(
        "no step records of any training, and only trainings are compared; the report shows the "
        f"times of other stages\nnext: slurm-jobs report '{moved}'"
    )


def test_with_several_trainings_a_stage_must_be_named(paths):
    with edited(paths.resolved_spec) as spec:
        spec["stages"]["again"] = {**spec["stages"]["train"], "after": {}}
    again = paths.timing_stage_dir("train").rename(paths.timing_stage_dir("again"))
    assert measure(paths.run_dir).stage == "again"
    shutil.copytree(again, paths.timing_stage_dir("train"))
    with pytest.raises(InputError, match=r"several trainings \(again, train\); name one"):
        measure(paths.run_dir)
    assert measure(paths.run_dir, stage="train").stage == "train"

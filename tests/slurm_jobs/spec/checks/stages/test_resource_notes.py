"""Notes on resources without their effect, which others do not get."""

import pytest

from tests.slurm_jobs.spec.checks.stages.chained import chain
from tests.slurm_jobs.spec.conftest import Notes


@pytest.mark.parametrize(
    "resources",
    ["", "timeout_min: 10, signal_lead_s: 300", "timeout_min: 1"],  # no one set the default lead
)
def test_resources_that_have_their_effect_are_not_noted(notes: Notes, resources: str) -> None:
    assert notes(chain(resources=resources)) == []


def test_gpus_of_a_training_on_gpus_are_not_noted(notes: Notes) -> None:
    assert notes(chain(resources="gpus_per_node: 1").replace("device: cpu, ", "")) == []


def test_the_lead_of_array_tasks_is_within_the_limit_of_all_their_slices(notes: Notes) -> None:
    lead, array = "resources: {timeout_min: 1, signal_lead_s: 60}", "array: {num_slices: 4"
    assert notes(chain().replace("make}", f"make, {lead}, {array}, slices_per_task: 2}}}}")) == []
    (note,) = notes(chain().replace("make}", f"make, {lead}, {array}}}}}"))
    assert "stages.m.resources.signal_lead_s: " in note

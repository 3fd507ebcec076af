from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load

Notes = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  s: {{shell: make, {s}}}
  t:
    run: train
    after: s
    resources: {{{resources}}}
    config: {{dataset: "${{s.output_dir}}", num_steps: 1, strategy: single, device: {device}}}
"""


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    def run(resources: str, *, device: str = "cpu", s: str = "retries: 0") -> list[str]:
        file = tmp_path / "spec.yaml"
        file.write_text(SPEC.format(resources=resources, device=device, s=s))
        return [f"{note.line}: {note.message}" for note in load(file).notes]

    return run


def test_gpus_for_a_training_on_the_cpu_are_noted(notes: Notes) -> None:
    assert notes("gpus_per_node: 2") == [
        (
            "8: stages.t.resources.gpus_per_node: `2` has no effect but to keep GPUs from others: "
            "the config says `device: cpu`; set `device: cuda`, or leave it out"
        )
    ]
    assert notes("gpus_per_node: 2", device="cuda") == []
    assert notes("") == []


def test_a_lead_that_is_cut_to_half_of_the_time_limit_is_noted(notes: Notes) -> None:
    assert notes("timeout_min: 10, signal_lead_s: 600") == [
        (
            "8: stages.t.resources.signal_lead_s: of the time limit (10 min) it can be half: the "
            "ranks are asked to stop 300 s before its end, not `600`; give 300 or less, or raise "
            "timeout_min"
        )
    ]
    assert notes("timeout_min: 10, signal_lead_s: 300") == []
    assert notes("timeout_min: 1") == []  # nobody asked for the default


def test_the_lead_of_array_tasks_is_within_the_limit_of_all_their_slices(notes: Notes) -> None:
    asked, array = "resources: {timeout_min: 1, signal_lead_s: 60}", "array: {num_slices: 4"
    assert notes("", s=f"{asked}, {array}, slices_per_task: 2}}") == []
    (note,) = notes("", s=f"{asked}, {array}}}")
    assert "stages.s.resources.signal_lead_s: " in note

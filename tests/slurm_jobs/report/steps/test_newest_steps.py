"""Steps of the newest config represent a training if there are enough of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.slurm_jobs.report.builders import notes_with, report_from, with_intents, with_stage


@pytest.fixture
def resumed(inputs_of):
    """A report of a training that waited 0.6 s a step for data up to a resume with a new config."""

    def make(num_steps):
        inputs = inputs_of(stopped_at=300, resumed_at=300, num_steps=num_steps)

        def slowed(timing):
            if timing.steps is None or timing.attempt != 1:
                return timing
            steps = timing.steps.steps.copy()
            for name in ("data_wait_s", "step_s"):
                steps[name] += 0.54
            steps["start_unix_s"] += 0.54 * np.arange(len(steps))
            return replace(timing, steps=replace(timing.steps, steps=steps))

        changed = with_stage(
            inputs,
            "train",
            attempts=lambda a: replace(a, fingerprint=f"f{a.attempt}"),
            timings=slowed,
        )
        intents = tuple(replace(i, fingerprint="f2") for i in inputs.intents)
        return report_from(with_intents(changed, *intents))

    return make


def test_a_wait_for_data_that_a_resume_fixed_is_no_finding(resumed, report_of):
    report = resumed(500)
    (title,) = [f.title for f in report.findings if "waits for data" in f.title]
    assert title.startswith("8")  # percent: as the newest config has it, not the mean of both
    (numbers,) = report.training
    assert (numbers.num_steps, numbers.num_measured) == (500, 490)
    assert notes_with(report, "use only the 195 measured steps under the newest")
    assert not notes_with(report_of(), "newest config and code")


def test_all_steps_are_judged_with_a_note_if_the_newest_config_has_few(resumed):
    report = resumed(315)
    assert any("waits for data" in finding.title for finding in report.findings)
    assert notes_with(report, "only 10 of the 305 measured steps ran under the newest")

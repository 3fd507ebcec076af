"""Step records next to which a rank wrote a profile."""

from __future__ import annotations

import numpy as np
import pytest

from tests.slurm_jobs.report.builders import attempts_of, make_steps, rank_timing


def interrupted(steps, name, before, duration_s):
    """Have a rank do something else before a step; return the span that it writes of that."""
    start_unix_s = float(steps["start_unix_s"][before])
    steps["start_unix_s"][before:] += duration_s
    return {"name": name, "start_unix_s": start_unix_s, "duration_s": duration_s}


PREPARE_S, WRITE_S = 1.5, 13.0


def both_ranks(records, spans):
    """Rank 0 has the spans."""
    return attempts_of(
        *(
            rank_timing(1, rank, steps, () if rank else spans, num_ranks=len(records))
            for rank, steps in enumerate(records)
        )
    )


@pytest.fixture
def records():
    made = [make_steps(60, rank=rank, num_ranks=2) for rank in (0, 1)]
    for steps in made:  # 60 ms of waiting in each step, on a device, too
        for name in ("rank_wait_s", "rank_wait_data_s", "step_s"):
            steps[name] += 0.06
        steps["device_rank_wait_s"], steps["device_step_s"] = 0.06, steps["step_s"]
        steps["start_unix_s"] += 0.06 * np.arange(len(steps))
    return made


def profiled(records):
    """Rank 0 prepares before step 20 and writes before step 23; rank 1 waits in these steps."""
    found, spans = [steps.copy() for steps in records], []
    waits = ["rank_wait_data_s", "rank_wait_s", "step_s", "device_rank_wait_s", "device_step_s"]
    for name, before, took_s in (
        ("profile_prepare", 20, PREPARE_S),
        ("profile_write", 23, WRITE_S),
    ):
        spans.append(interrupted(found[0], name, before, took_s))
        found[1]["start_unix_s"][before + 1 :] += took_s
        for field in waits:
            found[1][field][before] += took_s
    return found, spans

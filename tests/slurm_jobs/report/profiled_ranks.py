"""Reports of a training whose ranks recorded exposed communication."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import write_operators

ENDED = {"stopped_at": None, "data_wait_s": 0.01}


@pytest.fixture
def exchanged(run_of):
    """The run of ranks of which each recorded so many seconds of exposed communication."""

    def make(*exposed_s, num_ranks=2):
        paths, _ = run_of(num_ranks=num_ranks, **ENDED)
        for rank, exposed in enumerate(exposed_s):
            times = {"communication_s": 0.9, "exposed_communication_s": exposed}
            folder = paths.timing_dir("train", 0, 1)
            write_operators(folder, rank, num_steps=3, wall_s=2.0, **times)
        return paths

    return make

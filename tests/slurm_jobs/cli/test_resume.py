"""What `resume` says."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.cli.resume import notes_of
from slurm_jobs.operations.resume import Resumption
from slurm_jobs.plan import Plan
from slurm_jobs.run.connections import Connections
from slurm_jobs.run.paths import RunPaths


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("anew", "`fit` begins at step 0, as it was asked for; "),
        ("goes on", "`fit` goes on from its newest checkpoint: "),
        ("depends", "`fit` begins at step 0 where what it learns or its data differ, "),
    ],
)
def test_a_note_says_where_a_training_begins(start, said):
    resumption = Resumption(
        paths=RunPaths(Path("run")),
        plan=Plan(name="run", stages=(), jobs=()),
        preparation=SimpleNamespace(connections=Connections()),
        code_changed=False,
        trainings={"fit": start},
    )
    (note,) = notes_of(resumption)
    assert note.startswith(said)

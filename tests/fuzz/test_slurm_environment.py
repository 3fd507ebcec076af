"""Whatever Slurm's and launchers' variables say in a shell: nothing is misled, no job runs twice.

The slow test takes a real Slurm for `SLURM_JOBS_FUZZ_SLURM_S` seconds (60 by default, 600 for a
long run).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.schedulers.launcher_variables import left_by_launchers
from slurm_jobs.schedulers.slurm_environment import (
    query_environment,
    sbatch_environment,
    step_environment,
)
from tests.cluster.cluster import Cluster, wait_until
from tests.end_to_end.driver import COMMAND
from tests.fuzz.budget import bounded, examples
from tests.launcher_variables import LEFT, OF_OUR_RANKS, SETTINGS
from tests.slurm_variables import NAMES

ODD = ("", "0", "1", "-1", "yes", "no", "NONE", "ALL", "all", "nobody", "x" * 5000, "%i", "gpu:9")
ODD += (
    "PENDING",
    "FAILED",
    "cpu",
    "7",
    "9999999",
    "caf\udce9",
    "a b",
    "/nonexistent/x",
    "9-0",
    "@",
)
WHICH_SLURM = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
"""That another Slurm is meant, or another user, is for the shell to say."""
_WHOSE = ("ACCOUNT", "CONSTRAINT", "PARTITION", "QOS", "RESERVATION", "WCKEY")
OF_SBATCH = frozenset(f"SBATCH_{word}" for word in _WHOSE)
OF_LAUNCHERS = sorted({name for left in LEFT.values() for name in left} - set(NAMES))
VARIABLES = st.dictionaries(
    st.sampled_from([*NAMES, *OF_LAUNCHERS, *SETTINGS]), st.sampled_from(ODD), max_size=40
)
OPTIONS = st.sets(st.sampled_from(sorted(name[7:].lower() for name in OF_SBATCH)))


@examples(200)
@given(VARIABLES, OPTIONS)
def test_no_command_gets_a_variable_that_contradicts(
    variables: dict[str, str], options: set[str]
) -> None:
    shell = {**variables, "HOME": "/home/me"}
    with bounded():
        asked, submitted = query_environment(shell), sbatch_environment(shell, options)
        job = {name: value for name, value in submitted.items() if name in NAMES}
        ranks = step_environment(submitted, ())
    assert asked["HOME"] == submitted["HOME"] == "/home/me"
    assert set(NAMES) & asked.keys() <= WHICH_SLURM | {"SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT"}
    read = {name for name in job if name.startswith(("SBATCH_", "SLURM_", "SLURMD_", "SRUN_"))}
    of_options = {f"SBATCH_{option.upper()}" for option in options}
    assert read <= WHICH_SLURM | (OF_SBATCH - of_options)
    assert all(job[name] == variables[name] for name in job)
    assert not left_by_launchers(submitted.keys() - {"OMP_NUM_THREADS"})
    assert (SETTINGS.keys() & variables.keys()) <= ranks.keys()
    assert not {name for name in ranks if name.startswith(("SRUN_", "SLURM_EXPORT"))}


SPEC = """\
name: odd
cluster: auto
environment: {GREETING: hello}
stages:
  a:
    shell: >-
      a=a.$SLURM_JOBS_SLICE.$RANK; mkdir $a && echo $GREETING > $a/said && sleep 1
      && env > $a/env && echo $WORLD_SIZE $SLURM_NTASKS $SLURM_PROCID > $a/who
    array: {num_slices: 2}
    resources: {tasks_per_node: 2, timeout_min: 2, slurm: {partition: cpu}}
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_no_variable_causes_a_traceback_or_has_a_slice_run_twice(
    cluster: Cluster,
) -> None:
    seed = int(os.environ.get("SLURM_JOBS_FUZZ_SEED", "28"))
    end_s = time.monotonic() + float(os.environ.get("SLURM_JOBS_FUZZ_SLURM_S", "60"))
    drawn, number = random.Random(seed), 0
    while time.monotonic() < end_s or not number:
        number += 1
        _one_run(cluster, cluster.work_dir("odd"), drawn)
    print(f"{number} runs, seed {seed}")


def _one_run(cluster: Cluster, folder: Path, drawn: random.Random) -> None:
    """Submit, look, resume twice while it runs, and wait, each in another shell."""
    (folder / "spec.yaml").write_text(SPEC)

    def command(*words: str) -> tuple[int, str]:
        names = [n for n in (*NAMES, *OF_LAUNCHERS) if n not in WHICH_SLURM | OF_SBATCH]
        shell = {name: drawn.choice(ODD) for name in drawn.sample(names, drawn.randint(1, 60))}
        done = cluster.run_as_user([*COMMAND, *words, "--json"], cwd=folder, env=shell, check=False)
        assert "Traceback" not in done.stderr, (shell, done.stderr)
        assert done.returncode in {0, 1}, (words, shell, done.stderr)
        return done.returncode, done.stdout

    run_dir = json.loads(command("submit", "spec.yaml")[1])["run_dir"]
    num_jobs = len(list((Path(run_dir) / "jobs").iterdir()))
    for _ in range(2):
        command("resume", run_dir)
    assert len(list((Path(run_dir) / "jobs").iterdir())) == num_jobs

    def is_over() -> bool:
        return json.loads(command("status", run_dir, "--fresh")[1])["status"] == "completed"

    wait_until(is_over, f"the end of {run_dir}", timeout_s=90)
    said = [(folder / f"a.{i}.{rank}" / "said").read_text() for i in range(2) for rank in range(2)]
    assert said == ["hello\n"] * 4
    for index, rank in itertools.product(range(2), range(2)):
        place = folder / f"a.{index}.{rank}"
        assert (place / "who").read_text() == f"2 2 {rank}\n"
        lines = (place / "env").read_text(errors="surrogateescape").splitlines()
        given = {line.partition("=")[0] for line in lines} - OF_OUR_RANKS
        assert not given & {*OF_LAUNCHERS} - {"OMP_NUM_THREADS"}

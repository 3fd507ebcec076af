"""Cost of `submit` and `status`, compared with plain sbatch and plain submitit.

    python -m benchmarks.orchestrator [--quick] [--json FILE]

As root on Debian or Ubuntu, this starts the test cluster of tests/cluster, configured for arrays of
ten thousand tasks, and stops it at the end. Elsewhere these rows are skipped with a message. The
jobs are the same for all three: an array of 1,000 tasks and a chain of three jobs that depends on
it. They begin in an hour, so that none runs during the measurement.
"""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.table import Row, arguments, interleaved, row, show, spent_by
from slurm_jobs.base.processes.python_commands import module_command
from tests.cluster.cluster import Cluster, wait_until
from tests.cluster.errors import ClusterUnavailableError

ARRAY_SIZE = 1_000
STATUS_SIZE = 10_000
SIMULATED = (1_000, 10_000, 100_000)
COMMAND = tuple(module_command("slurm_jobs"))
TAB = ("_ARGCOMPLETE=1", "COMP_LINE=slurm-jobs logs m", "COMP_POINT=17")
"""The environment in which a shell asks for completions."""
DEMO = Path(__file__).parents[1] / "configs" / "demo.yaml"
FOLDER = Path("/var/tmp", f"slurm-jobs-bench-{os.getpid()}")  # noqa: S108 - sockets want short paths

SPEC = """\
name: chain
cluster: auto
stages:
  a:
    shell: "true"
    array: {{num_slices: {size}}}
    resources: {{mem_gb: 0.1, slurm: {{begin: now+1hour}}}}
  b: {{shell: "true", after: a, resources: {{mem_gb: 0.1}}}}
  c: {{shell: "true", after: b, resources: {{mem_gb: 0.1}}}}
  d: {{shell: "true", after: c, resources: {{mem_gb: 0.1}}}}
"""

PLAIN_SBATCH = f"""\
set -e
a=$(sbatch --parsable --mem=100M --array=0-{ARRAY_SIZE - 1} --begin=now+1hour --wrap true)
b=$(sbatch --parsable --mem=100M --dependency=afterok:$a --wrap true)
c=$(sbatch --parsable --mem=100M --dependency=afterok:$b --wrap true)
d=$(sbatch --parsable --mem=100M --dependency=afterok:$c --wrap true)
"""

PLAIN_SUBMITIT = f"""\
import submitit


def work(index):
    return index


def executor(**more):
    made = submitit.SlurmExecutor("submitit-logs")
    made.update_parameters(mem="100M", array_parallelism={ARRAY_SIZE}, additional_parameters=more)
    return made


jobs = executor(begin="now+1hour").map_array(work, range({ARRAY_SIZE}))
last = jobs[0].job_id.partition("_")[0]
for index in range(3):
    last = executor(dependency=f"afterok:{{last}}").submit(work, index).job_id
"""


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    repeats = 2 if options.quick else 7
    rows = start_up_rows(repeats)
    rows += simulation_rows(1 if options.quick else 3)
    try:
        cluster = Cluster.up(FOLDER, max_array_size=STATUS_SIZE + 1, max_job_count=3 * STATUS_SIZE)
    except ClusterUnavailableError as error:
        print(f"skipped the rows that need Slurm: {error}")
    else:
        try:
            rows = [*submit_rows(cluster, repeats), *status_rows(cluster, repeats), *rows]
        finally:
            cluster.down()
    show(rows, options, ("slurm-jobs", "submitit"))


def submit_rows(cluster: Cluster, repeats: int) -> list[Row]:
    """Measure CPU and wall time of submitting the same jobs with each tool."""
    # An installed package has bytecode; the cluster's user cannot write any into a checkout.
    for package in ("slurm_jobs", "pipeline"):
        compileall.compile_dir(Path(__file__).parents[1] / package, quiet=1)
    folder = cluster.work_dir("bench")
    _write(folder, "chain.yaml", SPEC.format(size=ARRAY_SIZE))
    _write(folder, "plain.sh", PLAIN_SBATCH)
    _write(folder, "plain.py", PLAIN_SUBMITIT)
    ways = {
        "ours": [*COMMAND, "submit", "chain.yaml"],
        "plain sbatch": ["bash", "plain.sh"],
        "plain submitit": [sys.executable, "plain.py"],
    }
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, argv in ways.items():
            cost = spent_by(lambda argv=argv: cluster.run_as_user(argv, cwd=folder))
            runs[name].append((cost.wall_s, cost.cpu_s))
            _forget_all(cluster)
    rows = []
    for number, unit in enumerate(("s wall", "s CPU")):
        results = {
            name: statistics.median(cost[number] for cost in costs) for name, costs in runs.items()
        }
        for peer in list(ways)[1:]:
            case = f"submit {ARRAY_SIZE + 3:,} tasks in 4 jobs"
            rows.append(row(case, unit, results["ours"], peer=peer, peer_value=results[peer]))
    return rows


def status_rows(cluster: Cluster, repeats: int) -> list[Row]:
    """Measure `status` on a queued array, and count its calls to Slurm."""
    folder = cluster.work_dir("bench")
    _write(folder, "chain.yaml", SPEC.format(size=STATUS_SIZE))
    shown = cluster.run_as_user([*COMMAND, "submit", "chain.yaml", "--json"], cwd=folder)
    run_dir = json.loads(shown.stdout)["run_dir"]
    calls = _counting_programs(cluster, folder)
    path = {"PATH": f"{folder / 'bin'}:{cluster.env()['PATH']}"}
    status = [*COMMAND, "status", run_dir, "--fresh"]
    cluster.run_as_user(status, cwd=folder, env=path, check=False)
    num_asked = len(calls.read_text().splitlines())
    queue = ["squeue", "--me", "--noheader", "--array"]
    costs = interleaved(
        {
            "ours": lambda: cluster.run_as_user(status, cwd=folder, check=False),
            "squeue": lambda: cluster.run_as_user(queue, cwd=folder),
        },
        repeats=repeats,
    )
    _forget_all(cluster)
    case = f"status of {STATUS_SIZE:,} tasks"
    return [
        row(case, "s wall", costs["ours"].wall_s, peer="squeue --array alone",
            peer_value=costs["squeue"].wall_s, at_most=1.0),
        row(case, "s CPU", costs["ours"].cpu_s, peer="squeue --array alone",
            peer_value=costs["squeue"].cpu_s),
        row(case, "questions to Slurm", num_asked, at_most=2),
    ]  # fmt: skip


def start_up_rows(repeats: int) -> list[Row]:
    """Measure how long the commands take to start."""
    costs = interleaved(
        {
            "help": lambda: _run(*COMMAND, "--help"),
            "check": lambda: _run(*COMMAND, "check", str(DEMO)),
            "tab": lambda: _run("env", *TAB, "bash", "-c", 'exec "$@" 8>&1', "-", *COMMAND),
            "status": lambda: _run(*COMMAND, "status", "/nowhere"),
            "python": lambda: _run(sys.executable, "-c", "pass"),
            "submitit": lambda: _run(sys.executable, "-c", "import submitit"),
        },
        repeats=3 * repeats,
    )
    rows = []
    for verb, case, at_most in (
        ("help", "slurm-jobs --help", 0.25),
        ("check", "slurm-jobs check of the demo", 0.6),
        ("tab", "a TAB behind slurm-jobs logs", 0.15),
        ("status", "slurm-jobs status, no run found", None),
    ):
        for peer, name in (("python", "python -c pass"), ("submitit", "import submitit")):
            value = costs[peer].cpu_s
            goal = at_most if peer == "python" else None
            rows.append(
                row(case, "s CPU", costs[verb].cpu_s, peer=name, peer_value=value, at_most=goal)
            )
    return rows


def simulation_rows(repeats: int) -> list[Row]:
    """Plan, read, reconcile and resume one array from synthetic records."""
    rows = []
    for size in SIMULATED:
        results = [_simulated(size) for _ in range(repeats)]
        is_last = size == SIMULATED[-1]
        medians = {key: statistics.median(run[key] for run in results) for key in results[0]}
        case = f"plan, look and resume {size:,} tasks"
        rows.append(row(case, "s wall", medians["total_s"], at_most=5.0 if is_last else None))
        rows.append(row(case, "MB held", medians["max_rss_mb"], at_most=500.0 if is_last else None))
    return rows


def _simulated(size: int) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.simulation", str(size)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _run(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, check=False)


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o644)


def _counting_programs(cluster: Cluster, folder: Path) -> Path:
    """Write wrappers of squeue, sacct and similar programs that log each call."""
    calls = folder / "calls"
    _write(folder, "calls", "")
    calls.chmod(0o666)
    (folder / "bin").mkdir()
    (folder / "bin").chmod(0o755)
    for program in ("squeue", "sacct", "scontrol", "sinfo", "sacctmgr"):
        real = cluster.run_as_user(["which", program]).stdout.strip()
        script = folder / "bin" / program
        script.write_text(f'#!/bin/bash\necho {program} >> {calls}\nexec {real} "$@"\n')
        script.chmod(0o755)
    return calls


def _forget_all(cluster: Cluster) -> None:
    cluster.run_as_user(["scancel", "--me"])
    wait_until(lambda: not cluster.squeue(), "an empty queue", timeout_s=60)


if __name__ == "__main__":
    main()

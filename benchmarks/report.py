"""The report of a large training: 64 ranks and 100,000 steps, with and without device times.

    python -m benchmarks.report [--quick] [--json FILE]

Writes synthetic step records (about a gigabyte). A separate process reads them and makes the report
as page, JSON and terminal output. The time is wall time, the memory the peak resident memory.
`--quick` has 8 ranks and 20,000 steps, and no goals.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.table import Row, arguments, row, show
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import AttemptRecord
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.timings.step_records import (
    DEVICE_FIELDS,
    STEP_FIELDS,
    steps_header,
    steps_path,
)
from slurm_jobs.run_folder.paths import RunPaths

MAX_S, MAX_GIB, MAX_PAGE_MB = 15.0, 1.0, 2.0
CREATED, STEP_S = 1_700_000_000.0, 0.5


def make_run(folder: Path, num_ranks: int, num_steps: int, *, device: bool) -> RunPaths:
    """Write a run with one training, eight ranks per node."""
    paths = RunPaths(folder)
    resources = {"nodes": num_ranks // 8, "tasks_per_node": 8, "cpus_per_task": 8}
    stage = {
        "run": "train", "after": {}, "array": None, "config": {},
        "resources": {**resources, "gpus_per_node": 8},
    }  # fmt: skip
    spec = {"name": "large", "stages": {"train": stage}}
    run = {"run_id": "large", "name": "large", "created_unix_s": CREATED, "scheduler": "slurm"}
    run |= {"submitted_by": "ada", "host": "n0", "version": "0", "spec_file": "large.yaml"}
    attempt = AttemptRecord(
        stage="train", slice_index=0, attempt=1, job_id="1", token="t1", fingerprint="f",  # noqa: S106 - no secret
        started_unix_s=CREATED, node_names=("n0",), host="n0", pid=1, num_ranks=num_ranks,
        scheduler="slurm", restart=0,
    )  # fmt: skip
    files = {
        paths.run_json: run,
        paths.resolved_spec: spec,
        paths.attempt("train", 0, 1): record_to_json(attempt),
    }
    for path, values in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, values)
    timing = paths.timing_dir("train", 0, 1)
    timing.mkdir(parents=True)
    for rank in range(num_ranks):
        metadata = {"num_ranks": num_ranks, "node_name": f"n{rank // 8}", "device": "cuda"}
        header = steps_header({**metadata, "num_steps": num_steps, "training": "t"})
        records = make_records(rank, num_steps, device=device)
        steps_path(timing, rank).write_bytes(header + records.tobytes())
    return paths


def make_records(rank: int, num_steps: int, *, device: bool) -> np.ndarray:
    """Return steps whose times all differ from those of the step before."""
    rng = np.random.default_rng(rank)
    records = np.zeros(num_steps, [(name, "<" + code) for name, code in STEP_FIELDS])
    parts = {"data_wait_s": 0.02, "host_to_device_s": 0.01, "forward_s": 0.15, "backward_s": 0.28}
    for name, mean in {**parts, "optimizer_s": 0.03, "other_s": 0.005}.items():
        records[name] = rng.gamma(4, mean / 4, num_steps)
        records["step_s"] += records[name]
    longest = np.maximum(records["step_s"], STEP_S * 1.5)
    records["rank_wait_s"] = longest - records["step_s"]
    records["core_wait_s"] = rng.uniform(0, 0.01, num_steps)
    records["rank_wait_data_s"] = rng.uniform(0, 1, num_steps) * records["rank_wait_s"]
    records["step_s"] = longest
    records["step"] = np.arange(num_steps)
    records["start_unix_s"] = CREATED + 60 + np.concatenate([[0.0], np.cumsum(longest)[:-1]])
    records["num_microbatches"], records["num_samples"] = 1, 32
    records["num_tokens"] = rng.integers(30_000, 32_768, num_steps)
    records["num_padding_tokens"] = 32_768 - records["num_tokens"]
    records["loss"] = 2 + np.exp(-np.arange(num_steps) / 1e4) + rng.normal(0, 0.02, num_steps)
    records["grad_norm"] = rng.gamma(4, 0.25, num_steps)
    records["learning_rate"] = np.linspace(1e-4, 0, num_steps)
    records["memory_peak_bytes"] = 60e9
    for name in (*DEVICE_FIELDS, "model_flops", "mfu"):
        records[name] = rng.gamma(4, 0.02, num_steps) if device else math.nan
    return records


def measure(paths: RunPaths) -> tuple[float, float, float]:
    """Return the seconds and peak GiB of a report made in another process, and its page's MB."""
    start_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.report", "--make", str(paths.run_dir)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    taken_s = time.perf_counter() - start_s
    peak_bytes = json.loads(done.stdout.splitlines()[-1])["peak_bytes"]
    return taken_s, peak_bytes / 1024**3, paths.report_html.stat().st_size / 1e6


def make_report(run_dir: Path) -> None:
    """Make the report without asking a scheduler, and print the peak memory."""
    from rich.console import Console

    from slurm_jobs.report.stage import build_and_write
    from slurm_jobs.report.text.terminal import print_report

    print_report(build_and_write(RunPaths(run_dir)), Console(width=160))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak_bytes": peak_kib * 1024}))


def main() -> None:
    """Run the benchmark."""
    if sys.argv[1:2] == ["--make"]:
        make_report(Path(sys.argv[2]))
        return
    options = arguments(__doc__)
    num_ranks, num_steps = (8, 20_000) if options.quick else (64, 100_000)
    rows: list[Row] = []
    for device in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            paths = make_run(Path(folder) / "run", num_ranks, num_steps, device=device)
            figures = sorted(measure(paths) for _ in range(3))[1]
        kind = "with device times" if device else "host times alone"
        case = f"report of {num_ranks} ranks, {num_steps:,} steps, {kind}"
        goals = (None, None, None) if options.quick else (MAX_S, MAX_GIB, MAX_PAGE_MB)
        units = ("s", "GiB at the peak", "MB of page")
        for value, unit, goal in zip(figures, units, goals, strict=True):
            rows.append(row(case, unit, value, at_most=goal))
    show(rows, options, ["numpy"])


if __name__ == "__main__":
    main()

"""Runs that were never made, and their repeats: records of steps alone."""

import json

from slurm_jobs.formats.timings.step_records import read_steps, steps_header, steps_path
from tests.slurm_jobs.report import fabricate_run

NUM_RUNS = 3


def make_runs(folder, name, *, num_ranks=2, **properties):
    """Repeats that differ in their ids and, by a little, in the time of all steps."""
    made = []
    for number in range(NUM_RUNS):
        scenario = fabricate_run.Scenario(num_ranks=num_ranks, stopped_at=None, **properties)
        paths, _ = fabricate_run.fabricate(folder / f"{name}{number}", scenario)
        run = json.loads(paths.run_json.read_text())
        paths.run_json.write_text(json.dumps({**run, "run_id": f"{name}{number}"}))
        for rank in range(num_ranks):
            path = steps_path(paths.timing_dir("train", 0, 1), rank)
            steps = read_steps(path).steps.copy()
            steps["backward_s"] += 0.001 * number
            steps["step_s"] += 0.001 * number
            path.write_bytes(steps_header({"num_ranks": num_ranks}) + steps.tobytes())
        made.append(str(paths.run_dir))
    return made

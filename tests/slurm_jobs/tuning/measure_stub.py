"""In the place of a trial's process, as `start.py call CONTEXT`: leaves records of equal steps.

The variable STUB says how it goes: `starves` (a quarter of a step waits for data until there are 4
loader threads), `computes` (no step waits), `leaves nothing`, or `fails`.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from slurm_jobs.formats.timings.step_records import STEP_FIELDS, pack_step, steps_header, steps_path

STEP_S, COMPUTE_S = 0.02, 0.015

does = os.environ["STUB"]
context = json.loads(Path(sys.argv[2]).read_text())
config = context["config"]
if does == "fails":
    error = {"type": "ValueError", "message": "no such dataset", "retryable": False}
    (Path(context["task_dir"]) / "rank-00000.error.json").write_text(json.dumps(error))
    sys.exit(1)
if does == "leaves nothing":
    sys.exit()
is_fed = config["num_kept_steps"] or config["train"]["num_loader_threads"] >= 4
wait_s = STEP_S - COMPUTE_S if does == "starves" and not is_fed else 0.0
values = dict.fromkeys((name for name, _ in STEP_FIELDS), 0)
values |= {"data_wait_s": wait_s, "forward_s": COMPUTE_S, "step_s": COMPUTE_S + wait_s}
values |= {"num_samples": 8, "num_tokens": 1000, "num_microbatches": 1, "memory_peak_bytes": 1e9}
with steps_path(Path(context["timing_dir"]), 0).open("wb") as stream:
    stream.write(steps_header({"rank": 0, "node_name": "node-0"}))
    for step in range(config["train"]["num_steps"]):
        start_s = 1.7e9 + step * values["step_s"]
        stream.write(pack_step({**values, "step": step, "start_unix_s": start_s}))

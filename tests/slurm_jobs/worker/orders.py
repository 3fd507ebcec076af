"""A job's order, its environment and a rank's keeper, for the tests of the supervisor's parts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker.job_identity import RANK_VARIABLES, JobEnvironment


def order(
    run_dir: Path = Path("/run"),
    *,
    scheduler: str = "slurm",
    nodes: int = 2,
    main_addr: str | None = None,
    is_array: bool = False,
    gpu: tuple[str, ...] = (),
    slurm: dict[str, str] | None = None,
) -> JobOrder:
    resources = JobResources(
        nodes=nodes, tasks_per_node=1, cpus_per_task=1, gpus_per_node=0, gpu=gpu, mem_gb=None,
        timeout_min=30, signal_lead_s=60, slurm=slurm or {},
    )  # fmt: skip
    return JobOrder(
        run_id="r", run_dir=str(run_dir), token="t", job_name="n", scheduler=scheduler, stage="s",
        run="own:f", shell=None, slices=(0,), is_array=is_array, max_running=None, num_slices=1,
        fingerprint="f", retries=0, max_requeues=1, config={}, parents=(), ancestor_output_dirs={},
        python="python", start_script="start.py", setup=(), environment={}, node_local_dir="/tmp",
        main_addr=main_addr, spec_dir="/", limit=None, resources=resources, log_dir="/run/logs",
    )  # fmt: skip


def environment(*node_names: str, is_slurm: bool = True) -> JobEnvironment:
    return JobEnvironment(
        element_id="12_3",
        slices=(3,),
        restart=0,
        node_names=node_names,
        deadline_unix_s=0.0,
        is_slurm=is_slurm,
    )


def start_keeper(
    context: TaskContext, order: dict[str, Any], *, before: str = "", **variables: str
) -> subprocess.Popen[bytes]:
    """Start the keeper of rank 0 on n1 in a process of its own, which runs `before` first."""
    RunPaths(context.run_dir).logs_dir(context.stage).mkdir(parents=True)
    write_json_atomic(context.task_dir / "context.json", record_to_json(context))
    values = {"shell": None, "start_script": "start.py", "cpus_per_task": 1, "nsight": False}
    write_json_atomic(context.task_dir / "order.json", {**values, **order})
    who = dict(zip(RANK_VARIABLES, ("0", "0", "0", "n1"), strict=True))
    script = (
        f"{before}\nimport sys\nfrom pathlib import Path\n"
        "from slurm_jobs.worker.rank import keep_rank\nsys.exit(keep_rank(Path(sys.argv[1])))"
    )
    root = str(Path(__file__).resolve().parents[3])
    return subprocess.Popen(
        [sys.executable, "-c", script, str(context.task_dir)],
        env={**os.environ, **who, "PYTHONPATH": root, **variables},
    )

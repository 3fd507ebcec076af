"""A job's order and its environment, as the tests of the supervisor's parts need them."""

from pathlib import Path

from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.shared.records import JobResources
from slurm_jobs.worker.environment import JobEnvironment


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

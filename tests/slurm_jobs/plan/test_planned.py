"""GPU-hours of a plan count nodes, GPUs, tasks and the time limit."""

from slurm_jobs.plan.make_plan import gpu_hours_asked
from tests.slurm_jobs.plan.planned_stages import plan, spec


def test_gpu_hours_count_nodes_gpus_tasks_and_the_time_limit() -> None:
    given = spec(tokens={"resources": {"gpus_per_node": 1, "timeout_min": 30}})
    made = plan(given)
    hours = {job.stage: gpu_hours_asked(job) for job in made.jobs}
    assert hours == {"fetch": 0, "tokens": 2.0, "train": 12.0, "report": 0, "mend": 0}

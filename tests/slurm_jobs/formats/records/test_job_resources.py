"""Resources of a job: GPUs under sbatch's own names are GPUs."""

from typing import Any

import pytest

from slurm_jobs.plan.make_plan import gpu_hours_asked, make_plan
from slurm_jobs.spec.profile import ClusterProfile
from tests.slurm_jobs.plan.planned_stages import spec


@pytest.mark.parametrize(
    ("slurm", "num_gpus"),
    [
        ({"gres": "gpu:a100:4"}, 4),
        ({"gres": "gpu:4"}, 4),
        ({"gres": "gpu=4"}, 4),
        ({"gres": "gpu:a100=4"}, 4),
        ({"gres": "gpu"}, 1),
        ({"gres": "gpu:a100"}, 1),
        ({"gres": "nvme:2,gres/gpu:a100:2,gpu:v100:2"}, 4),
        ({"gres": "gpu:tesla:2(S:0-1)"}, 2),
        ({"gres": "GPU:2"}, 2),
        ({"gres": "gpu:4090:2"}, 2),
        ({"gres": "gpu:2K"}, 2048),
        ({"tres-per-task": "cpu:2,gres/gpu:2"}, 4),
        ({"gpus_per_socket": "a100:2", "sockets_per_node": 2}, 4),
        ({"gres": "nvme:4"}, 0),
        ({"gres": "none"}, 0),
    ],
)
def test_gpus_under_sbatchs_own_names_are_gpus(slurm: dict[str, Any], num_gpus: int) -> None:
    asked = {"nodes": 3, "tasks_per_node": 2, "timeout_min": 60, "slurm": slurm}
    given = spec(fetch={"resources": asked})
    profile = ClusterProfile(slurm={"partition": "cpu"}, gpu_slurm={"partition": "gpu"})
    job = make_plan(given, profile).jobs[0]
    assert gpu_hours_asked(job) == 3 * num_gpus
    assert job.resources.slurm["partition"] == ("gpu" if num_gpus else "cpu")
    assert {k: v for k, v in job.resources.slurm.items() if k != "partition"} == slurm

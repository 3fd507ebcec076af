"""Partitions, accounts and QOS that a job may use, and the loosest of their limits."""

from slurm_jobs.cluster.limits import Qos
from slurm_jobs.commands.limit_checks import limit_problems
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from tests.slurm_jobs.cluster.small_cluster import OWN, cluster, problems

QOS = {"long": Qos(name="long", max_wall_min=60, max_submit=50), "gpuq": Qos(name="gpuq")}


def test_account_and_qos_must_be_the_users_own() -> None:
    limits = cluster(qos=QOS, associations=OWN, enforces_qos=True)
    ((place, message),) = problems({"slurm": {"account": "vison"}}, limits)
    assert (place, "did you mean `vision`" in message) == ("account", True)
    ((place, message),) = problems({"slurm": {"qos": "lang"}}, limits)
    assert (place, "did you mean `long`" in message) == ("qos", True)
    assert problems({"slurm": {"account": "Vision", "qos": "long"}}, limits) == []
    assert problems({"slurm": {"qos": "lang"}}, cluster(qos=QOS, associations=OWN)) == []


def test_the_looser_time_limit_of_partition_and_qos_counts() -> None:
    patient = {"week": Qos(name="week", max_wall_min=10_080)}
    limits = cluster(qos=patient, associations=OWN)
    assert problems({"timeout_min": 4000, "slurm": {"qos": "week"}}, limits) == []
    ((place, message),) = problems({"timeout_min": 20_000, "slurm": {"qos": "week"}}, limits)
    assert (place, "more than the 10080" in message) == ("timeout_min", True)


def test_a_job_without_a_partition_may_go_anywhere_where_a_plugin_chooses() -> None:
    assert problems({"cpus_per_task": 64}, cluster(is_routed=True)) == []
    assert problems({"cpus_per_task": 65}, cluster(is_routed=True)) != []


def test_a_limit_of_one_stages_qos_does_not_bind_the_others() -> None:
    debug = {"debug": Qos(name="debug", max_submit=2)}
    spec = RunSpec.model_validate(
        {
            "name": "x1",
            "stages": {
                "a": {"shell": "x", "array": {"num_slices": 400}},
                "b": {"shell": "x", "resources": {"slurm": {"qos": "debug"}}},
            },
        }
    )
    limits = cluster(qos=debug, num_queued=500)
    plan = make_plan(spec, ClusterProfile(), limits=limits)
    assert [job.num_tasks for job in plan.jobs] == [400, 1]
    assert limit_problems(plan, limits) == []

from collections.abc import Callable

import pytest

Check = Callable[..., list[str]]

SPEC = """\
name: a
cluster: {cluster}
stages:
  s:
    shell: x
    resources:
      {resources}
      slurm: {{{slurm}}}
"""


def spec(resources: str, slurm: str, cluster: str = "local") -> str:
    return SPEC.format(resources=resources, slurm=slurm, cluster=cluster)


@pytest.mark.parametrize(
    ("resources", "slurm", "words"),
    [
        ("mem_gb: 8", "mem-per-cpu: 4G", "`mem-per-cpu: 4G` and `mem_gb` exclude each other"),
        ("mem_gb: 8", "mem_per_cpu: 4G", "`mem-per-cpu: 4G` and `mem_gb` exclude each other"),
        ("mem_gb: 8", "mem-per-gpu: 4G", "`mem-per-gpu: 4G` and `mem_gb` exclude each other"),
        ("nodes: 1", "mem-per-cpu: 4G, mem-per-gpu: 4G", "`mem-per-cpu: 4G` and `mem-per-gpu`"),
        ("gpus_per_node: 4", "gres: 'gpu:4'", "`gres: gpu:4` and `gpus_per_node`"),
        ("gpus_per_node: 4", "gres: 'nvme:1,gpu:a100:4'", "and `gpus_per_node`"),
        ("gpus_per_node: 4", "gres: gres/gpu=4", "and `gpus_per_node`"),
        ("gpus_per_node: 4", "tres-per-task: 'gres/gpu:1'", "and `gpus_per_node`"),
        ("gpus_per_node: 4", "gpus-per-socket: 2, sockets-per-node: 2", "and `gpus_per_node`"),
        ("nodes: 1", "tres-per-task: 'cpu=4'", "`tres-per-task: cpu=4` and `cpus_per_task`"),
        ("nodes: 1", "exclusive: true, oversubscribe: true", "`oversubscribe` exclude each other"),
        ("nodes: 1", "requeue: true, no-requeue: true", "`requeue` exclude each other"),
        ("nodes: 1", "core-spec: 1, thread-spec: 1", "`thread-spec` exclude each other"),
        ("nodes: 1", "hint: compute_bound, threads-per-core: 1", "`threads-per-core` exclude"),
    ],
)
def test_options_that_exclude_each_other_are_refused_at_their_line(
    check: Check, resources: str, slurm: str, words: str
) -> None:
    (message,) = check(spec(resources, slurm))
    assert message.startswith("8:")
    assert words in message


@pytest.mark.parametrize(
    ("option", "own"),
    [
        ("ntasks: 4", "resources.tasks_per_node"),
        ("ntasks-per-gpu: 1", "resources.tasks_per_node"),
        ("cpus-per-gpu: 4", "resources.cpus_per_task"),
        ("mem: 4G", "resources.mem_gb"),
        ("gpus: 4", "resources.gpus_per_node"),
        ("gpus-per-task: 1", "resources.gpus_per_node"),
        ("quiet: true", "slurm-jobs reads sbatch's answer itself"),
    ],
)
def test_an_option_that_contradicts_what_every_job_sets_has_a_key_of_its_own(
    check: Check, option: str, own: str
) -> None:
    (message,) = check(spec("nodes: 1", option))
    assert "has a key of its own" in message
    assert own in message


@pytest.mark.parametrize(
    ("resources", "slurm"),
    [
        ("nodes: 1", "mem-per-cpu: 4G"),
        ("mem_gb: 8", "mem-per-cpu: false"),
        ("gpus_per_node: 4", "gres: 'nvme:1'"),
        ("gpus_per_node: 4", "mem-per-gpu: 8G"),
        ("nodes: 1", "gres: 'gpu:a100:4'"),
        ("nodes: 1", "exclusive: true, requeue: true"),
    ],
)
def test_options_that_go_together_are_no_problem(check: Check, resources: str, slurm: str) -> None:
    assert check(spec(resources, slurm)) == []


def test_a_stage_that_contradicts_the_profile_is_refused_at_its_own_key(check: Check) -> None:
    profile = "scheduler: slurm\nslurm: {mem-per-cpu: 4G}\n"
    given = spec("mem_gb: 8", "comment: x", cluster="c.yaml")
    (message,) = check(given, c__yaml=profile)
    assert message.startswith("7:")
    assert "`mem-per-cpu: 4G` of the cluster profile and `mem_gb` exclude each other" in message

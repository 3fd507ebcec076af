import pytest

from tests.slurm_jobs.spec.conftest import Check

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
        ("mem_gb: 8", "mem_per_cpu: 4G", "`mem-per-cpu: 4G` and `mem_gb` exclude each other"),
        ("mem_gb: 8", "mem-per-gpu: 4G", "`mem-per-gpu: 4G` and `mem_gb` exclude each other"),
        ("gpus_per_node: 4", "gres: 'gpu:4'", "`gres: gpu:4` and `gpus_per_node`"),
        ("gpus_per_node: 4", "gres: 'nvme:1,gpu:a100:4'", "and `gpus_per_node`"),
        ("gpus_per_node: 4", "gres: gres/gpu=4", "and `gpus_per_node`"),
        ("gpus_per_node: 4", "tres-per-task: 'gres/gpu:1'", "and `gpus_per_node`"),
        ("gpus_per_node: 4", "gpus-per-socket: 2, sockets-per-node: 2", "and `gpus_per_node`"),
        ("nodes: 1", "exclusive: true, oversubscribe: true", "`oversubscribe` exclude each other"),
        ("nodes: 1", "requeue: true, no-requeue: true", "`requeue` exclude each other"),
        ("nodes: 1", "core-spec: 1, thread-spec: 1", "`thread-spec` exclude each other"),
        ("nodes: 1", "hint: compute_bound, threads-per-core: 1", "`threads-per-core` exclude"),
        ("nodes: 1", "hint: compute_bound, extra-node-info: '2:2'", "`extra-node-info` exclude"),
        ("timeout_min: 60", "time-min: '2:00:00'", "(120 min) is above"),
        ("timeout_min: 60", "time-min: 1-0", "(1440 min) is above"),
        ("timeout_min: 60", "time-min: '1-1:30'", "(1530 min) is above"),
        ("nodes: 1", "time-min: 90", "`timeout_min` exclude each other"),
        ("nodes: 1", "ntasks-per-gpu: 1", "has a key of its own: resources.tasks_per_node"),
        ("nodes: 1", "mem: 4G", "has a key of its own: resources.mem_gb"),
        ("nodes: 1", "gpus-per-task: 1", "has a key of its own: resources.gpus_per_node"),
    ],
)
def test_options_that_exclude_each_other_are_refused_at_their_line(
    check: Check, resources: str, slurm: str, words: str
) -> None:
    (message,) = check(spec(resources, slurm))
    assert message.startswith("8:")
    assert words in message


@pytest.mark.parametrize(
    ("resources", "slurm"),
    [
        ("nodes: 1", "mem-per-cpu: 4G"),
        ("mem_gb: 8", "mem-per-cpu: false"),
        ("gpus_per_node: 4", "gres: 'nvme:1'"),
        ("gpus_per_node: 4", "mem-per-gpu: 8G"),
        ("nodes: 1", "gres: 'gpu:a100:4'"),
        ("nodes: 1", "exclusive: true, requeue: true"),
        ("timeout_min: 60", "time-min: 60"),
        ("timeout_min: 60", "time-min: '1:00:00'"),
        ("timeout_min: 1440", "time-min: 1-0"),
        ("nodes: 1", "time-min: soon"),
        ("nodes: 1", "distribution: block"),
        ("nodes: 1", "export: ALL, get-user-env: false"),
    ],
)
def test_options_that_go_together_are_no_problem(check: Check, resources: str, slurm: str) -> None:
    assert check(spec(resources, slurm)) == []


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("export: 'HOME,PATH'", "export: `HOME,PATH` would"),
        ("export: NONE", "export: `NONE` would"),
        ("export: 'ALL,A=1'", "export: `ALL,A=1` would"),
        ("export: true", "export: `true` would"),
        ("export-file: env", "export-file: `env` would"),
        ("export_file: env", "export_file: `env` would"),
        ("get-user-env: true", "get-user-env: `true` would"),
        ("get-user-env: 30L", "get-user-env: `30L` would"),
    ],
)
def test_options_that_change_what_a_job_inherits_are_refused(
    check: Check, option: str, shown: str
) -> None:
    (message,) = check(spec("nodes: 1", option))
    assert message.startswith("8:")
    assert f" stages.s.resources.slurm.{shown}" in message
    assert "write `environment: {NAME: value}` in the spec" in message
    for key in ("slurm", "gpu_slurm"):
        profile = f"scheduler: slurm\n{key}: {{{option}}}\n"
        given = spec("nodes: 1", "comment: x", cluster="c.yaml")
        (message,) = check(given, c__yaml=profile)
        assert message.startswith("c.yaml:2:")
        assert f"{key}.{shown}" in message

"""Messages for keys and values that a spec does not take."""

import pytest

from tests.slurm_jobs.spec.conftest import Check
from tests.slurm_jobs.spec.resource_problems import resources

SHELL = "name: a\ncluster: local\nstages:\n  s:\n    shell: x\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: two", "f:1:8: nodes: expected a whole number, found the text `two`"),
        ("nodes: 1.5", "f:1:8: nodes: expected a whole number, found `1.5`"),
        ("nodes: true", "f:1:8: nodes: expected a whole number, found `true`"),
        ("nodes:", "f:1:1: nodes: expected a whole number, found nothing"),
        ("nodes: [1]", "f:1:1: nodes: expected a whole number, found a list of 1"),
        ("nodes: 0", "f:1:8: nodes: must be greater than or equal to 1, found `0`"),
        ("mem_gb: '8'", "f:1:9: mem_gb: expected a number, found the text `8`; remove the quotes"),
        (
            "cpus_per_task: '4.0'",
            "f:1:16: cpus_per_task: expected a whole number, found the text `4.0`",
        ),
        (
            "mem_gb: 4G",
            (
                "f:1:9: mem_gb: expected a number, found the text `4G`; "
                "`mem_gb` counts gigabytes: write 4"
            ),
        ),
        (
            "timeout_min: 1.5 h",
            (
                "f:1:14: timeout_min: expected a number, found the text `1.5 h`; "
                "`timeout_min` counts minutes: write 90"
            ),
        ),
        (
            "gpu: 3",
            (
                "f:1:6: gpu: names the type of GPU, such as a100, or a list of types, found `3`; "
                "set the number of GPUs in gpus_per_node"
            ),
        ),
        ("slurm: [a]", "f:1:1: slurm: expected keys and values, found a list of 1"),
        (
            "slurm: {qos: [a]}",
            (
                "f:1:9: slurm.qos: expected text or true or false or a whole number or a number, "
                "found a list of 1"
            ),
        ),
        (
            "slurm: {nodes: 2}",
            "f:1:9: slurm: `nodes` has a key of its own: resources.nodes",
        ),
        (
            "slurm: {ntasks_per_node: 2}",
            "f:1:9: slurm: `ntasks_per_node` has a key of its own: resources.tasks_per_node",
        ),
    ],
)
def test_a_message_says_what_is_wrong_found_and_allowed(text: str, expected: str) -> None:
    assert resources(text) == [expected]


def test_an_unknown_key_suggests_the_nearest_and_lists_all() -> None:
    (line,) = resources("nodes: 1\ncpu_per_task: 3")
    assert line.startswith("f:2:1: unknown key `cpu_per_task`; did you mean `cpus_per_task`?")
    assert "allowed: nodes, tasks_per_node" in line


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("partition", "`partition` belongs under `slurm:`: write `slurm: {partition: 1}`"),
        ("mem_per_cpu", "`mem_per_cpu` belongs under `slurm:`: write `slurm: {mem_per_cpu: 1}`"),
        ("partiton", "did you mean `partition`, under `slurm:`?"),
        (
            "time",
            "sbatch's `time` has a key of its own: resources.timeout_min (`timeout_min: 720`)",
        ),
        ("timeout", "did you mean `timeout_min`?"),
        ("gpu_per_node", "did you mean `gpus_per_node`?"),
    ],
)
def test_an_option_of_sbatch_with_a_key_elsewhere_is_refused_with_that_key(
    key: str, hint: str
) -> None:
    (line,) = resources(f"{key}: 1")
    assert line.startswith(f"f:1:1: unknown key `{key}`; {hint} (allowed: nodes,")


def test_a_number_or_truth_value_where_text_belongs_is_to_be_quoted(check: Check) -> None:
    assert check(SHELL + "environment: {A: 1, B: true}\n") == [
        "6:18: environment.A: expected text, found `1`; put quotes around it",
        "6:24: environment.B: expected text, found `true`; put quotes around it",
    ]


def test_every_wrong_key_and_value_is_reported_once() -> None:
    lines = resources("nodes: x\ngpus: 1\nmem_gb: y\nslurm: {time: 1, mem: 2, 'a b': 3}")
    assert len(lines) == len(set(lines)) == 6


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "num_lanes: 7",
            (
                "11:18: stages.t.config: num_lanes is 7: give a divisor of global_batch_size (64), "
                "or let global_batch_size be a multiple of it (63 or 70)"
            ),
        ),
        (
            "global_batch_size: 100",
            (
                "11:26: stages.t.config: global_batch_size is 100: give a multiple of 8 (the "
                "default of num_lanes), such as 96 or 104"
            ),
        ),
    ],
)
def test_a_check_across_keys_points_at_the_key_that_it_names(
    check: Check, key: str, message: str
) -> None:
    text = (
        "name: a\ncluster: local\nstages:\n  t:\n    run: train\n"
        "    resources: {tasks_per_node: 2}\n"
        "    config:\n      device: cpu\n      dataset: .\n      num_steps: 5\n"
        f"      {key}\n"
    )
    assert check(text) == [message]

"""What `plan` shows, and where it can be made."""

import json
from pathlib import Path

import pytest

from slurm_jobs import api
from tests.slurm_jobs.cli.command import Command

SPEC = """
name: far
cluster: auto
stages:
  a: {shell: "true", resources: {gpus_per_node: 1, timeout_min: 60}}
"""
NOT_ASKED = "the cluster's limits are unknown: there is no scontrol on this machine"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec for Slurm, on a machine that has none of its commands."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    return file


def test_a_plan_for_slurm_is_made_on_a_machine_without_slurm(spec: Path, command: Command) -> None:
    shown = command("plan", str(spec)).result
    assert "far on slurm" in shown
    assert "GPU-hours requested, up to the time limits: 1.0" in shown
    assert f"note: {NOT_ASKED}" in shown
    assert "#SBATCH --gpus-per-node=1" in shown

    assert NOT_ASKED in json.loads(command("plan", str(spec), "--json").result)["notes"]
    assert api.plan(spec).name == "far"


def test_a_submit_needs_slurm_and_says_so(spec: Path, command: Command) -> None:
    ended = command("submit", str(spec))
    assert ended.code == 3
    assert "`sbatch` was not found" in ended.err
    assert not (spec.parent / "runs").exists()


def test_a_plan_says_which_variables_of_the_shell_apply_and_which_do_not(
    spec: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    spec.write_text(SPEC.replace("gpus_per_node: 1", "slurm: {partition: cpu}"))
    for name in ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_OUTPUT", "SLURM_MEM_PER_CPU"):
        monkeypatch.setenv(name, "x")
    lines = command("plan", str(spec), "--no-scripts").result.splitlines()
    assert (
        "note: SBATCH_ACCOUNT=x of this shell applies to a: the spec has no `account` there"
        in lines
    )
    (ignored,) = [line for line in lines if "jobs do not get" in line]
    assert "SBATCH_OUTPUT, SBATCH_PARTITION" in ignored
    assert "SLURM_MEM_PER_CPU" in ignored


@pytest.mark.parametrize(
    ("given", "in_spec", "missing"),
    [
        ({}, "", ()),
        ({"PYTORCH_CUDA_ALLOC_CONF": "x"}, "", ("PYTORCH_ALLOC_CONF",)),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, "", ("GLOO_SOCKET_IFNAME",)),
        ({}, "environment: {TORCH_FR_BUFFER_SIZE: x}", ("TORCH_FR_BUFFER_SIZE",)),
        ({}, "slurm: {distribution: cyclic}", ("--distribution",)),
    ],
)
def test_a_plan_shows_variables_set_for_ranks_without_those_of_the_user(
    spec: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    *,
    given: dict[str, str],
    in_spec: str,
    missing: tuple[str, ...],
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    stage = """
  a:
    shell: "true"
    {environment}
    resources: {{tasks_per_node: 2, cpus_per_task: 3, gpus_per_node: 2, {slurm}}}
"""
    of_slurm = in_spec.startswith("slurm")
    spec.write_text(
        SPEC.partition("  a:")[0].rstrip()
        + stage.format(
            environment="" if of_slurm else in_spec, slurm=in_spec if of_slurm else ""
        ).replace(", }", "}")
    )
    _, _, after = command("plan", str(spec), "--no-scripts").result.partition(
        "set for the ranks of a:\n"
    )
    lines = after.partition("\n\n")[0].splitlines()
    settings = {
        "OMP_NUM_THREADS": "3",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": "(the attempt's folder)/flight-",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "GLOO_SOCKET_IFNAME": "(that of the route to the first node)",
        "--distribution": "block:block",
    }
    shown = [f"  {name}={value}" for name, value in settings.items() if name not in missing]
    assert lines == shown

"""What `plan` shows, and where it can be made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs import api
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.narrow_screen import narrow, narrow_output, rows
from tests.slurm_jobs.cli.specs.far_spec import SPEC, spec

__all__ = ["narrow", "spec"]

NOT_ASKED = "the cluster's limits are unknown: there is no scontrol on this machine"


def test_a_plan_for_slurm_is_made_on_a_machine_without_slurm(spec: Path, command: Command) -> None:
    shown = command("plan", str(spec)).result
    assert "far on slurm" in shown
    assert "GPU-hours requested, up to the time limits: 1.0" in shown
    assert f"note: {NOT_ASKED}" in shown
    assert "#SBATCH --gpus-per-node=1" in shown

    assert NOT_ASKED in json.loads(command("plan", str(spec), "--json").result)["notes"]
    assert api.plan(spec).name == "far"


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


ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.usefixtures("narrow")
def test_plan_breaks_no_name_and_no_quantity(capsys) -> None:
    out = narrow_output(capsys, "plan", str(ROOT / "configs/demo.yaml"), "--no-scripts")
    assert ["render", "shapes_demo:render", "-", "1"] in rows(out)
    for whole in ("2 ranks a node with 1 core each", "at most 20 min 00 s", "at most 1 h 00 min"):
        assert whole in out

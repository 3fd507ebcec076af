"""A profile in 80 columns: an operator has one line, and words are whole."""

from __future__ import annotations

import json

import pytest

from slurm_jobs.formats.timings.profiler_files import (
    OPERATORS_FORMAT_NAME,
    operators_path,
    trace_path,
)
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.narrow_screen import narrow, narrow_output
from tests.slurm_jobs.report.profiles.made_up import event, step, write_trace

__all__ = ["narrow"]

KERNEL = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_align8>(Params)"


@pytest.mark.usefixtures("narrow")
def test_profile_has_a_line_an_operator_and_whole_words(tmp_path, capsys) -> None:
    paths = RunPaths(tmp_path / "run")
    paths.run_dir.mkdir()
    paths.run_json.write_text("{}")
    path = trace_path(paths.timing_dir("train", 0, 1), 0)
    nccl = event("kernel", "ncclDevKernel_AllReduce", 700, 1000)
    write_trace(path, step(4, 0, 1_234_567), event("kernel", KERNEL, 0, 800), nccl)
    operator = {
        "name": KERNEL,
        "kind": "kernel",
        "num_calls": 1_234_567,
        "self_cpu_s": 12.3,
        "cpu_s": 12.3,
        "self_device_s": 1.23,
        "device_s": 1.23,
        "cpu_share": 0.1,
        "device_share": 0.4,
        "self_cpu_bytes": None,
        "self_device_bytes": None,
    }
    table = {"first_step": 4, "num_steps": 1, "wall_s": 1.0, "operators": [operator]}
    operators_path(path.parent, 0).write_text(
        json.dumps({"format": OPERATORS_FORMAT_NAME, **table})
    )
    out = narrow_output(capsys, "profile", str(paths.run_dir))
    assert "computing and communicating" in out
    assert out.count(" a step\n") == 5  # shares, each on its line
    (line,) = [line for line in out.splitlines() if "1,234,567" in line]
    assert line.startswith(" void cutlass::Ker...")
    assert "--json has the full names" in out

"""A verb's process loads no module from the folder it starts in, nor beside its script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import slurm_jobs
from slurm_jobs.commands.data_sets import entry_process
from tests.slurm_jobs.base.processes.shadowed import shadow


def test_a_verbs_process_starts_without_the_folder_of_its_script(tmp_path: Path) -> None:
    shadow(tmp_path)
    script = tmp_path / "entry_process.py"
    script.write_bytes(Path(entry_process.__file__).read_bytes())
    packages = {"slurm_jobs": str(Path(slurm_jobs.__file__).parent)}
    request = {"packages": packages, "entry_point": "operator:is_", "arguments": {}}
    with subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()  # and stays open: who asks is still there
        assert json.loads(process.stdout.read()) == {"result": False}

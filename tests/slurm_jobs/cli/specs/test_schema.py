"""The verb `schema` prints the shipped schema."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.base.files import dump_json
from slurm_jobs.commands.spec_reading.json_schema import profile_schema, spec_schema

ROOT = Path(__file__).resolve().parents[4]
SPEC_SCHEMA, PROFILE_SCHEMA = spec_schema(), profile_schema()


@pytest.mark.parametrize("options", [[], ["--profile"]])
def test_the_command_prints_the_shipped_schema(options: list[str]) -> None:
    command = [sys.executable, "-m", "slurm_jobs", "schema", *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    name = "profile" if options else "spec"
    shipped = ROOT / "templates" / "schema" / f"{name}.schema.json"
    assert result.stdout == shipped.read_text(encoding="utf-8")
    assert json.loads(result.stdout) == (PROFILE_SCHEMA if options else SPEC_SCHEMA)
    assert dump_json(json.loads(result.stdout)) == result.stdout

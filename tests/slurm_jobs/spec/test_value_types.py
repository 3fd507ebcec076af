"""Names with odd characters, and programs that are paths only with a slash."""

from pathlib import Path

import pytest

from slurm_jobs.commands.spec_reading.read_spec import load
from tests.slurm_jobs.spec.path_specs import folder, loaded, spec

__all__ = ["folder"]


def test_a_python_is_a_path_only_if_it_has_a_slash(folder: Path) -> None:
    def python(given: str) -> str | None:
        text = spec().replace("    config:", f"    python: {given}\n    config:")
        return loaded(folder, text).spec.stages["prep"].python

    assert python("python3.11") == "python3.11"
    (folder / "envs/bin").mkdir(parents=True)
    (folder / "envs/bin/python").touch()
    assert python("envs/bin/python") == str(folder / "envs/bin/python")


@pytest.mark.parametrize("given", ["a:b/c", "100%/x", "50% done", "{1..3}", "a<b", "runs-%"])
def test_a_name_with_odd_characters_is_a_name(folder: Path, given: str) -> None:
    (folder / "spec.yaml").write_text(spec())
    loaded_spec = load(folder / "spec.yaml", overrides=(f"runs_dir='{given}'",)).spec
    assert loaded_spec.runs_dir == f"{folder}/{given}"

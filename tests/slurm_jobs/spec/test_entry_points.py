from pathlib import Path

import pytest

from slurm_jobs.common.errors import SpecError
from slurm_jobs.operations.load import load


def problems(folder: Path, run: str) -> list[str]:
    spec = folder / "spec.yaml"
    spec.write_text(f'name: a\ncluster: local\nstages:\n  s: {{run: "{run}"}}\n')
    try:
        load(spec)
    except SpecError as error:
        return [problem.message for problem in error.problems]
    return []


def test_a_function_that_the_module_does_not_define_is_told_with_the_nearest(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text("def make(config, context):\n    raise SystemExit\n")
    assert problems(tmp_path, "mine:make") == []
    (message,) = problems(tmp_path, "mine:mak")
    assert message.endswith("mine.py defines no `mak`; did you mean `make`?")


@pytest.mark.parametrize(
    "text", ["from other import make", "make = lambda c, x: None", "from other import *"]
)
def test_a_function_that_comes_from_elsewhere_is_believed(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    assert problems(tmp_path, "mine:make") == []


def test_a_module_that_does_not_parse_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make(:\n")
    (message,) = problems(tmp_path, "mine:make")
    assert "mine.py is no valid Python" in message


def test_a_module_that_is_not_here_is_left_to_the_stages_python(tmp_path: Path) -> None:
    assert problems(tmp_path, "elsewhere.package:make") == []


def test_a_misspelt_builtin_is_told_with_the_nearest(tmp_path: Path) -> None:
    (message,) = problems(tmp_path, "reprot")
    assert message.endswith("did you mean `report`?")

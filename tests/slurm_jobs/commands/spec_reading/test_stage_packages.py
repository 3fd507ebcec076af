"""Whether `check` sees that a stage's Python lacks what the stage imports."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.spec_reading.stage_packages import NEEDED, missing_modules, package_notes
from slurm_jobs.worker.call import BUILTIN_ENTRY_POINTS

ROOT = Path(__file__).resolve().parents[4]
SPEC = """\
name: s
cluster: profile.yaml
stages:
  sum: {{run: report, python: {python}}}
{more}"""
LATER = {"train": "pipeline.train.stage"}
"""Modules that an entry point imports when it is called."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment without packages."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder)
    return folder / "bin/python"


def notes(folder: Path, python: Path | str, more: str = "", profile: str = "") -> list[str]:
    (folder / "profile.yaml").write_text(f"scheduler: local\n{profile}")
    (folder / "spec.yaml").write_text(SPEC.format(python=python, more=more))
    return package_notes(load(folder / "spec.yaml"))


def test_a_python_without_the_packages_of_its_stages_is_named(tmp_path: Path, bare: Path) -> None:
    (note,) = notes(tmp_path, bare, f"  probe: {{run: probe, python: {bare}}}\n")
    assert note.startswith(f"{bare}, the Python of sum, lacks the package numpy: install ")


def test_the_folders_agree_with_what_the_python_itself_finds(bare: Path) -> None:
    script = (
        "import importlib.util as util, sys\n"
        "print(*(name for name in sys.argv[1:] if util.find_spec(name) is None))"
    )
    modules = sorted(frozenset().union(*NEEDED.values()))
    for python in (str(bare), sys.executable):
        command = [python, "-c", script, *modules]
        answer = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
        assert missing_modules(python, modules) == set(answer.stdout.split())


@pytest.mark.parametrize("name", ["numpy/__init__.py", "numpy.py", "numpy.cpython-311.so"])
@pytest.mark.parametrize("is_linked", [False, True])
def test_each_form_of_a_module_is_found(
    tmp_path: Path, bare: Path, name: str, is_linked: bool
) -> None:
    env = tmp_path / "env"
    venv.create(env)
    (folder,) = env.glob("lib/python3*/site-packages")
    if is_linked:
        (folder / "own.pth").write_text(f"import sys\n{tmp_path}/own\n")
        folder = tmp_path / "own"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    assert missing_modules(str(env / "bin/python"), {"numpy", "torch"}) == {"torch"}


@pytest.mark.parametrize(
    ("more", "profile"),
    [
        ("setup: ['module load x']\n", ""),
        ("", "setup: ['source activate x']\n"),
        ("environment: {PYTHONPATH: /packages}\n", ""),
        ("", "environment: {PYTHONHOME: /packages}\n"),
    ],
)
def test_where_the_packages_may_come_later_nothing_is_noted(
    tmp_path: Path, bare: Path, more: str, profile: str
) -> None:
    assert notes(tmp_path, bare, more, profile) == []


def test_programs_that_are_no_plain_python_are_not_judged_or_run(tmp_path: Path) -> None:
    script = tmp_path / "env/bin/python"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    script.chmod(0o755)
    for python in (str(script), "/nowhere/python", "python3", "/bin/sh"):
        assert missing_modules(python, {"a_module_that_is_nowhere"}) == set()
    assert not (tmp_path / "was-run").exists()


def test_the_python_that_runs_check_is_asked_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "name: s\ncluster: local\nstages:\n  sum: {run: report}\n"
    (tmp_path / "spec.yaml").write_text(text)
    assert package_notes(load(tmp_path / "spec.yaml")) == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    (note,) = package_notes(load(tmp_path / "spec.yaml"))
    assert note.startswith(f"{sys.executable}, the Python of sum, lacks the package numpy")


TRACKED = """\
name: s
cluster: local
{more}stages:
  t:
    run: train
    config: {{device: cpu, strategy: single, num_steps: 1, dataset: ., trackers: {{use: [{use}]}}}}
"""


def test_a_tracker_whose_package_the_jobs_python_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    file = tmp_path / "spec.yaml"
    file.write_text(TRACKED.format(use="tensorboard, wandb", more=""))
    install = rf"spec.yaml:6:\d+: .*use\[1\]: .* `{sys.executable} -m pip install wandb`, or remove"
    with pytest.raises(SpecError, match=install):
        load(file, to_submit=True)
    assert load(file).spec.stages["t"].run == "train"
    file.write_text(TRACKED.format(use="wandb", more="setup: ['module load x']\n"))
    assert load(file, to_submit=True).notes == ()
    file.write_text(TRACKED.format(use="tensorboard", more=""))
    assert load(file, to_submit=True).notes == ()


def test_a_python_without_all_packages_of_a_training_is_noted(tmp_path: Path, bare: Path) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    file = tmp_path / "spec.yaml"
    text = TRACKED.format(use="wandb", more="").replace("train\n", f"train\n    python: {bare}\n")
    file.write_text(text)
    (note,) = package_notes(load(file, to_submit=True))
    assert "transformers, wandb, xxhash, yaml: install" in note


@pytest.mark.parametrize(
    "stage", ["download", "preprocess", "consolidate", "train", "report", "probe"]
)
def test_the_table_has_what_a_stage_imports_first(stage: str) -> None:
    module = LATER.get(stage, BUILTIN_ENTRY_POINTS[stage].partition(":")[0])
    assert NEEDED.get(stage, frozenset()) == imported(module)


def imported(module: str) -> set[str]:
    """Return the modules of others that a module of ours and its imports need at import."""
    remaining, seen, others = [module], set(), set()
    while remaining:
        name = remaining.pop()
        path = ROOT.joinpath(*name.split("."))
        file = next(
            (f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None
        )
        if name in seen or file is None:
            continue
        seen.add(name)
        for imports in names_imported(ast.parse(file.read_text()).body):
            top = imports.partition(".")[0]
            if top in {"pipeline", "slurm_jobs"}:
                parts = imports.split(".")
                remaining += [".".join(parts[: n + 1]) for n in range(len(parts))]
            elif top not in sys.stdlib_module_names:
                others.add(top)
    return others


def names_imported(statements: Iterable[ast.AST]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from names_imported(ast.iter_child_nodes(statement))

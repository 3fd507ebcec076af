"""Imports of a stage's module: what is broken is named, what Python may not load is left alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from slurm_jobs.spec.checks.imported_modules import ModuleReader
from tests.slurm_jobs.spec.checks.test_entry_points import MAKE, spec, write
from tests.slurm_jobs.spec.conftest import Check

BROKEN = "x = (\n"
DEEP = "x = " + "+".join(["1"] * 20_000) + "\n"


@pytest.mark.parametrize(
    ("importing", "low"),
    [
        ({"mine.py": "import low\n" + MAKE}, "low.py"),
        ({"mine.py": "from birds import low\n" + MAKE, "birds/__init__.py": ""}, "birds/low.py"),
        (
            {"mine.py": "from birds.low import sing\n" + MAKE, "birds/__init__.py": ""},
            "birds/low.py",
        ),
        ({"mine.py": "from birds import sing\n" + MAKE}, "birds/__init__.py"),
        ({"mine.py": "import high\n" + MAKE, "high.py": "import low"}, "low.py"),
    ],
)
def test_an_imported_module_that_is_not_python_is_named(
    check: Check, tmp_path: Path, importing: dict[str, str], low: str
) -> None:
    write(tmp_path, {**importing, low: BROKEN})
    (line,) = check(spec("mine:make"))
    assert f"{low} is not valid Python: '(' was never closed" in line


@pytest.mark.parametrize("bad", ["birds/__init__.py", "birds/low.py"])
def test_modules_that_a_package_loads_are_read_as_well(
    check: Check, tmp_path: Path, bad: str
) -> None:
    package = {"birds/__init__.py": "", "birds/low.py": "", "birds/high.py": "from . import low\n"}
    write(tmp_path, {**package, bad: BROKEN})
    write(tmp_path, {"birds/high.py": package["birds/high.py"] + MAKE})
    (line,) = check(spec("birds.high:make"))
    assert f"{bad} is not valid Python" in line


@pytest.mark.parametrize(
    "files",
    [
        # imports that may never run
        {"mine.py": MAKE + "if 0:\n  import low\n", "low.py": BROKEN},
        {"mine.py": MAKE + "try:\n  import low\nexcept Exception: ...\n", "low.py": BROKEN},
        {"mine.py": "import json\n" + MAKE, "json.py": BROKEN},
        {"mine.py": "import low\n" + MAKE, "low.py": "import mine\n"},
        # the module wins over the folder of the same name
        {"mine.py": "from low import tool\n" + MAKE, "low.py": "tool = 1\n", "low/tool.py": BROKEN},
        # an installed package would win over a folder without `__init__.py`
        {"mine.py": "from data import load\n" + MAKE, "data/load.py": BROKEN},
        # the package defines the name, so its module of that name is not loaded
        {
            "mine.py": "from birds import low\n" + MAKE,
            "birds/__init__.py": "low = 1\n",
            "birds/low.py": BROKEN,
        },
        {
            "mine.py": "from birds import low\n" + MAKE,
            "birds/__init__.py": "from birds.all import *\n",
            "birds/all.py": "low = 1\n",
            "birds/low.py": BROKEN,
        },
        {"mine.py": "import low\n" + MAKE, "low.py": DEEP},
        {"mine.py": "import low\n" + MAKE, "low.py": r"x = '\d'" + "\n"},
    ],
)
def test_what_python_may_not_load_or_can_is_no_problem(
    check: Check, tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warnings.filters", [("error", None, Warning, None, 0)])
    write(tmp_path, files)
    assert check(spec("mine:make")) == []


def test_modules_of_another_python_are_not_judged_by_this_one(check: Check, tmp_path: Path) -> None:
    write(tmp_path, {"mine.py": "import low\n" + MAKE, "low.py": BROKEN})
    assert check(spec("mine:make"), overrides=("stages.s.python=/usr/bin/python3",)) == []


def test_a_package_that_moves_its_parts_may_have_any(check: Check, tmp_path: Path) -> None:
    write(tmp_path, {"birds/__init__.py": "__path__ = ['/elsewhere']\n"})
    assert check(spec("birds.songs:make")) == []


def test_a_module_of_many_stages_is_parsed_once(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = ModuleReader._parse

    def note(reader: ModuleReader, file: str) -> ast.Module | None:
        parsed.append(file)
        return parse(reader, file)

    monkeypatch.setattr(ModuleReader, "_parse", note)
    write(tmp_path, {"mine.py": "import low\n" + MAKE, "low.py": ""})
    stages = "".join(f'  s{i}: {{run: "mine:make"}}\n' for i in range(20))
    assert check(f"name: a\ncluster: local\nstages:\n{stages}") == []
    assert sorted(map(Path, parsed)) == [tmp_path / "low.py", tmp_path / "mine.py"]

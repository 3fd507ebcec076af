from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load
from tests.slurm_jobs.spec.conftest import Check

BOM = "\ufeff"
MAKE = "def make(config, context): ...\n"


def spec(run: str) -> str:
    return f'name: a\ncluster: local\nstages:\n  s: {{run: "{run}"}}\n'


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "run", "overrides"),
    [
        ({"mine.py": MAKE + "raise SystemExit\n"}, "mine:make", ()),
        ({"mine.py": BOM + MAKE}, "mine:make", ()),
        ({"wordcount/__init__.py": MAKE}, "wordcount:make", ()),
        # it comes from elsewhere
        ({"mine.py": "from other import make"}, "mine:make", ()),
        ({"mine.py": "make = lambda c, x: None"}, "mine:make", ()),
        ({"mine.py": "from other import *"}, "mine:make", ()),
        # the job may find it elsewhere
        ({}, "elsewhere.package:make", ()),
        ({"wordcount.py": ""}, "wordcuont:count", ("stages.s.python=/usr/bin/python3",)),
        ({"wordcount.py": ""}, "wordcuont:count", ("stages.s.setup.0='module load words'",)),
        ({"wordcount.py": ""}, "wordcuont:count", ("setup.0='module load words'",)),
        ({"wordcount.py": ""}, "wordcuont:count", ("environment.PYTHONPATH=/words",)),
        (
            {"wordcount.py": "", "lib/wordcuont.py": ""},
            "wordcuont:count",
            ("code.0=lib/wordcuont.py",),
        ),
    ],
)
def test_a_function_that_may_be_there_is_no_problem(
    check: Check, tmp_path: Path, files: dict[str, str], run: str, overrides: tuple[str, ...]
) -> None:
    write(tmp_path, files)
    assert check(spec(run), overrides=overrides) == []


def test_a_module_of_this_python_is_no_misspelling_and_is_not_imported(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"wordcount.py": "", "site/wordcounts.py": "raise SystemExit\n"})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert check(spec("wordcounts:count")) == []


@pytest.mark.parametrize(
    ("files", "run", "nearest"),
    [
        ({"mine.py": BOM + MAKE}, "mine:mak", "make"),
        ({"wordcount.py": MAKE}, "wordcuont.inner:count", "wordcount"),
        ({"wordcount/__init__.py": MAKE}, "wordcuont.inner:count", "wordcount"),
        ({}, "reprot", "report"),
    ],
)
def test_a_name_that_is_nowhere_is_answered_with_the_nearest(
    check: Check, tmp_path: Path, files: dict[str, str], run: str, nearest: str
) -> None:
    write(tmp_path, files)
    (line,) = check(spec(run))
    assert line.startswith("4:12: stages.s.run: ")
    assert line.endswith(f"did you mean `{nearest}`?")


def test_a_spec_and_a_profile_with_a_byte_order_mark_are_read(check: Check, tmp_path: Path) -> None:
    text = f"{BOM}name: a\ncluster: site.yaml\nstages:\n  s: {{shell: 'true'}}\n"
    assert check(text, site__yaml=BOM + "scheduler: local\n") == []
    assert load(tmp_path / "spec.yaml").spec.name == "a"
    lines = check(text.replace("name", "nmae"))
    assert {line.partition(": ")[0] for line in lines} == {"1:1"}

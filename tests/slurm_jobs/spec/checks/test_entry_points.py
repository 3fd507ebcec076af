from pathlib import Path

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.worker.call import result_text
from tests.slurm_jobs.spec.conftest import Check

BOM = "\ufeff"
MAKE = "def make(config, context): ...\n"


def spec(run: str) -> str:
    return f'name: a\ncluster: local\nstages:\n  s: {{run: "{run}"}}\n'


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "run", "overrides"),
    [
        ({"mine.py": MAKE + "raise SystemExit\n"}, "mine:make", ()),
        ({"mine.py": BOM + MAKE}, "mine:make", ()),
        ({"wordcount/__init__.py": MAKE}, "wordcount:make", ()),
        # a part of the package that is no Python file
        ({"birds/__init__.py": "", "birds/songs.so": ""}, "birds.songs:make", ()),
        ({"birds/__init__.py": "", "birds/songs/high.py": MAKE}, "birds.songs.high:make", ()),
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
        ({"birds/__init__.py": "", "birds/songs.py": MAKE}, "birds.sonsg:make", "songs"),
        (
            {"birds/__init__.py": "", "birds/low/__init__.py": "", "birds/low/songs.py": MAKE},
            "birds.low.sonsg:make",
            "songs",
        ),
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


CALLABLE = (
    "def run(config, context): ...",
    "def run(config, context, extra=None): ...",
    "def run(config=None, context=None, /): ...",
    "def run(*values): ...",
    "def run(config, *rest, extra=1, **more): ...",
)
UNCALLABLE = {
    "def run(): ...": "takes no values by position",
    "def run(config): ...": "`run(config)` takes 1 value by position",
    "def run(config, *, context): ...": "takes 1 value by position",
    "def run(*, config, context): ...": "takes no values by position",
    "def run(**values): ...": "takes no values by position",
    "def run(config, context, extra): ...": "`run(config, context, extra)` needs 3 values",
    "def run(config, context, *, extra): ...": "needs `extra` by name",
    "def run(config, *rest, extra): ...": "needs `extra` by name",
}
RESULTLESS = {
    "async def run(config, context): ...": "an `async def`",
    "def run(config, context):\n    yield 1": "contains `yield`",
    "def run(config, context):\n    return (yield from ())": "contains `yield`",
    "class run:\n    def __init__(self, config, context): ...": "is a class",
}
UNKNOWN = (
    "@decorated\ndef run(config): ...",
    "class run(dict):\n    def __init__(self, config): ...",
    "class run(metaclass=Stage): ...",
    "class run:\n    def __new__(cls, config, context): return {}",
    "def run(config): ...\nrun = wrapped(run)",
    "def run(config): ...\nfor run in stages: ...",
    "with suppress(ImportError):\n    from fast import run",
    "try:\n    from fast import run\nexcept ImportError:\n    def run(config): ...",
    "if fast:\n    def run(config): ...\nelse:\n    def run(config, context): ...",
    "def run(config): ...\nif fast:\n    def run(config, context): ...",
    "def set_up():\n    global run\n    run = print",
    "def __getattr__(name): ...",
    "def run(config): ...\ndef run(config, context): ...",
    "def run(config, context):\n    def inner(): yield 1\n    return {}",
    "match stage:\n    case {**run}: ...\n    case [*run]: ...\nrun = 1",
)


@pytest.mark.parametrize("source", [*CALLABLE, *UNKNOWN])
def test_a_function_that_may_take_config_and_context_is_accepted(
    check: Check, tmp_path: Path, source: str
) -> None:
    write(tmp_path, {"mine.py": source})
    assert check(spec("mine:run")) == []


@pytest.mark.parametrize(("source", "words"), {**UNCALLABLE, **RESULTLESS}.items())
def test_a_function_that_no_stage_can_call_is_refused_at_its_line(
    check: Check, tmp_path: Path, source: str, words: str
) -> None:
    write(tmp_path, {"mine.py": f"import os\n{source}\n"})
    (line,) = check(spec("mine:run"))
    assert line.startswith("4:12: stages.s.run: mine.py:2: `run")
    assert words in line


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("class Stage:\n    def run(self, config, context): ...", 2),
        ("def make():\n    def run(config, context): ...\n    return run", 2),
    ],
)
def test_a_function_inside_a_class_or_function_is_refused(
    check: Check, tmp_path: Path, source: str, line: int
) -> None:
    write(tmp_path, {"mine.py": source})
    (problem,) = check(spec("mine:run"))
    assert f"mine.py:{line} defines `run` inside a class or another function" in problem


def test_the_last_of_several_definitions_decides(check: Check, tmp_path: Path) -> None:
    write(tmp_path, {"mine.py": "def run(config, context): ...\ndef run(config): ...\n"})
    (line,) = check(spec("mine:run"))
    assert "mine.py:2: `run(config)` takes 1 value" in line


@pytest.mark.parametrize("source", CALLABLE)
def test_python_calls_what_the_check_accepts(source: str) -> None:
    names: dict[str, object] = {}
    exec(source, names)
    assert names["run"]({}, None) is None  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("source", [*UNCALLABLE, *RESULTLESS])
def test_a_stage_fails_on_what_the_check_refuses(source: str) -> None:
    names: dict[str, object] = {}
    exec(source, names)
    with pytest.raises((TypeError, StageConfigError)):
        result_text("mine:run", names["run"]({}, None))  # type: ignore[operator]

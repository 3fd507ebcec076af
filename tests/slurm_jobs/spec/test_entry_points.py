from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load
from slurm_jobs.shared.errors import SpecError


def problems(folder: Path, run: str, *overrides: str) -> list[str]:
    spec = folder / "spec.yaml"
    spec.write_text(f'name: a\ncluster: local\nstages:\n  s: {{run: "{run}"}}\n')
    try:
        load(spec, overrides=overrides)
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


@pytest.mark.parametrize("file", ["wordcount.py", "wordcount/__init__.py"])
def test_a_module_that_is_nowhere_is_told_with_the_nearest_beside_the_spec(
    tmp_path: Path, file: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("def count(config, context): ...\n")
    assert problems(tmp_path, "wordcount:count") == []
    (message,) = problems(tmp_path, "wordcuont.inner:count")
    assert message == (
        "stages.s.run: there is no module `wordcuont` next to the spec or in this Python; "
        "did you mean `wordcount`?"
    )


def test_a_module_of_this_python_is_no_misspelling_and_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wordcount.py").write_text("")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "wordcounts.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert problems(tmp_path, "wordcounts:count") == []


@pytest.mark.parametrize(
    "override",
    [
        "stages.s.python=/usr/bin/python3",
        "stages.s.setup.0='module load words'",
        "setup.0='module load words'",
        "environment.PYTHONPATH=/words",
        "code.0=lib/wordcuont.py",
    ],
)
def test_a_module_that_may_come_from_elsewhere_is_left_to_the_job(
    tmp_path: Path, override: str
) -> None:
    (tmp_path / "wordcount.py").write_text("")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "wordcuont.py").write_text("")
    assert problems(tmp_path, "wordcuont:count", override) == []


BOM = b"\xef\xbb\xbf"


def test_a_module_with_a_byte_order_mark_is_read_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(BOM + b"def make(config, context): ...\n")
    assert problems(tmp_path, "mine:make") == []
    (message,) = problems(tmp_path, "mine:mak")
    assert message.endswith("did you mean `make`?")


def test_a_spec_and_a_profile_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_bytes(BOM + b"scheduler: local\n")
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(BOM + b"name: a\ncluster: site.yaml\nstages:\n  s: {shell: 'true'}\n")
    loaded = load(spec)
    assert loaded.spec.name == "a"
    assert loaded.profile.scheduler == "local"
    spec.write_bytes(BOM + b"nmae: a\ncluster: site.yaml\nstages:\n  s: {shell: 'true'}\n")
    with pytest.raises(SpecError) as caught:
        load(spec)
    assert {(p.line, p.column) for p in caught.value.problems} == {(1, 1)}

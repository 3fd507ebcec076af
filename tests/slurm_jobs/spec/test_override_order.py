"""What was set earlier for a run, when its file is read anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load
from slurm_jobs.shared.errors import SpecError
from slurm_jobs.spec.graph import LoadedSpec

SPEC = """\
name: m
cluster: local
setup: [one]
stages:
  a: {shell: "true", matrix: {r: [1]}}
  z: {shell: "true", after: a}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path / "spec.yaml"


def loaded(file: Path, *earlier: str, typed: tuple[str, ...] = ()) -> LoadedSpec:
    return load(file, overrides=typed, earlier=earlier)


def problem(file: Path, *earlier: str, typed: tuple[str, ...] = ()) -> str:
    with pytest.raises(SpecError) as caught:
        loaded(file, *earlier, typed=typed)
    (found,) = caught.value.problems
    return str(found)


@pytest.mark.parametrize("stage", ["a-2", "extra"])
def test_what_was_set_of_a_stage_that_is_no_more_is_left_out_and_said(
    file: Path, stage: str
) -> None:
    kept = "stages.a-1.retries=1"
    gone = f"stages.{stage}.environment.TOKEN=xyz"
    spec = loaded(file, gone, kept, typed=("stages.z.retries=2",))
    assert spec.overrides == (kept, "stages.z.retries=2")
    assert {name: stage.retries for name, stage in spec.spec.stages.items()} == {"a-1": 1, "z": 2}
    (said,) = spec.left_out
    assert said.startswith(f"--set stages.{stage}.environment.TOKEN=..., which was set earlier")
    assert f"there is no stage `{stage}`" in said
    assert "(stages: a-1, z)" in said
    assert "xyz" not in said


def test_where_the_file_has_no_matrix_any_more_its_combinations_are_left_out(file: Path) -> None:
    file.write_text(SPEC.replace(", matrix: {r: [1]}", ""))
    spec = loaded(file, "stages.a-1.retries=1")
    assert spec.overrides == ()
    assert len(spec.left_out) == 1


def test_a_stage_that_is_not_there_stays_a_mistake_of_what_is_typed_now(file: Path) -> None:
    gone = "stages.a-2.retries=1"
    said = problem(file, gone, typed=(gone,))
    assert said.startswith(f"--set {gone}: there is no stage `a-2`; did you mean `a-1`?")
    assert "earlier" not in said


@pytest.mark.parametrize(
    ("earlier", "typed"),
    [
        ("stages.z.after=extra", "stages.z.after=a"),
        ("setup.3=four", "setup=[four]"),
        ("stages.z.shell.x=1", "stages.z.shell=x"),
        ("stages.z.retris=1", "stages.z={shell: x, after: a}"),
    ],
)
def test_what_was_set_earlier_and_is_wrong_otherwise_says_so_and_can_be_replaced(
    file: Path, earlier: str, typed: str
) -> None:
    said = problem(file, earlier)
    key = earlier.partition("=")[0]
    assert said.startswith(f"--set {earlier}: ")
    assert said.endswith(
        "; this was set earlier for this run, and is put into the file again: replace it with "
        f"--set {key}=..., or set a key above it"
    )
    spec = loaded(file, earlier, typed=(typed,))
    assert spec.left_out == ()
    assert loaded(file, *spec.overrides).spec == spec.spec


def test_what_replaced_an_earlier_override_comes_after_it_though_its_stage_was_not_there(
    file: Path,
) -> None:
    spec = loaded(file, "stages.new.retries=7", typed=("stages.new={shell: x}",))
    assert spec.spec.stages["new"].retries == 0
    assert (spec.overrides, spec.left_out) == (("stages.new={shell: x}",), ())


def test_combinations_of_a_matrix_that_is_itself_set_may_be_named(file: Path) -> None:
    file.write_text(SPEC.replace(", matrix: {r: [1]}", ""))
    typed = ("stages.a.matrix={r: [8, 9]}", "stages.a-9.retries=1")
    stages = loaded(file, typed=typed).spec.stages
    assert {name: stage.retries for name, stage in stages.items()} == {"a-8": 0, "a-9": 1, "z": 0}

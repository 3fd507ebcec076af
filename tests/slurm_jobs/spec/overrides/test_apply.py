"""What `--set` changes, now and when the file of a run is read again."""

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.overrides.apply import apply_overrides
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.conftest import Check

TEXT = """\
name: a
cluster: local
setup: [one, two]
stages:
  train:
    shell: x
    config:
"""


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        (["stages.train.resources.nodes=2"], "stages.train.resources", {"nodes": 2}),
        (
            *(["stages.train.config={lr: 1e-4, b: [1, 2]}"], "stages.train.config"),
            {"lr": 1e-4, "b": [1, 2]},
        ),
        # missing and empty keys on the way are made
        (
            *(["stages.train.config.model.vision.num_layers=2"], "stages.train.config"),
            {"model": {"vision": {"num_layers": 2}}},
        ),
        (["stages.extra={shell: make}"], "stages.extra", {"shell": "make"}),
        (["setup.1=three"], "setup", ["one", "three"]),
        (["setup.2=three", "setup.3=four"], "setup", ["one", "two", "three", "four"]),
        (["code.0=helpers"], "code", ["helpers"]),
        (["stages.train.setup.0=module load cuda"], "stages.train.setup", ["module load cuda"]),
        (["name=b", "name=c"], "name", "c"),
        (["stages.train.shell=A=1 x"], "stages.train.shell", "A=1 x"),
    ],
)
def test_a_value_is_read_as_yaml_and_put_in_its_place(
    overrides: list[str], path: str, value: object
) -> None:
    given = read_yaml(TEXT, "f")
    document = apply_overrides(given, overrides)
    assert document.problems == ()
    found: Any = document.value
    for key in path.split("."):
        found = found[key]
    assert found == value
    assert given == read_yaml(TEXT, "f")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nodes", "write KEY.KEY=VALUE"),
        ("=3", "write KEY.KEY=VALUE"),
        ("a..b=3", "write KEY.KEY=VALUE"),
        ("name.x=3", "`name` holds no keys, so `x` has no place in it"),
        ("setup.3=x", "`setup` is a list of 2; `3` is none of its places (from 0; 2 appends)"),
        ("setup.x=x", "`setup` is a list of 2"),
        ("stages.trian.retries=3", "there is no stage `trian`; did you mean `train`?"),
        ("stages.train.retries=0x10", "another base"),
        ("name=[", "not valid YAML"),
        ("name=!!python/name:os.system", "tag"),
        ("stages.train.timeout_min=12:00:00", "`timeout_min` counts minutes: write 720"),
    ],
)
def test_what_cannot_be_set_is_a_problem_of_the_option(override: str, message: str) -> None:
    (found,) = apply_overrides(read_yaml(TEXT, "f"), [override]).problems
    assert str(found).startswith(f"--set {override}: ")
    assert message in str(found)


def test_a_wrong_value_is_reported_at_the_option_and_not_at_the_file(check: Check) -> None:
    (line,) = check(TEXT.replace("config:", "retries: 1"), overrides=("stages.train.retries=x",))
    assert line.startswith("--set stages.train.retries=x: stages.train.retries: expected a whole")


@pytest.mark.parametrize(
    "override",
    ["stages.train.config.num_epochs=2", "stages.train.config.reader=webdataset"],
)
def test_the_key_that_was_set_is_reported_when_keys_contradict_each_other(
    check: Check, override: str
) -> None:
    text = (
        "name: a\ncluster: local\nstages:\n  train:\n    run: train\n"
        "    resources: {tasks_per_node: 2}\n"
        "    config: {dataset: ., num_steps: 5, device: cpu, batching: {kind: grouped}}\n"
    )
    assert check(text) == []
    (line,) = check(text, overrides=(override,))
    assert line.startswith(f"--set {override}: stages.train.config: ")


def test_an_override_repairs_what_the_file_has_wrong(check: Check) -> None:
    text = TEXT.replace("config:", "retries: many")
    assert len(check(text)) == 1
    assert check(text, overrides=("stages.train.retries=2",)) == []


def test_limit_becomes_a_value_of_the_spec(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    (tmp_path / "mine.py").write_text("def work(config, context):\n    return None\n")
    file.write_text(TEXT.replace("    shell: x\n    config:\n", "    run: mine:work\n"))
    loaded = load(file, limit=500)
    assert loaded.spec.limit == 500
    assert loaded.overrides == ("limit=500",)


def test_a_limit_that_no_stage_takes_is_refused_where_it_is_typed(check: Check) -> None:
    text = TEXT.replace("    config:\n", "")
    (line,) = check(text, overrides=("limit=5",))
    assert line.startswith("--set limit=5: limit: no stage of this spec takes it: `run: preproc")
    assert check(text, overrides=("limit=null",)) == check(f"limit: 5\n{text}") == []
    (line,) = check(text, overrides=("limit=x",))
    assert "no stage" not in line
    (line,) = check(text.replace("shell: x", "run: preproces"), overrides=("limit=5",))
    assert "no stage" not in line


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
def test_what_was_set_of_a_stage_that_is_no_more_is_left_out_and_reported(
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


def test_combinations_of_a_matrix_that_the_file_lost_are_left_out(file: Path) -> None:
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
def test_an_earlier_override_that_is_now_wrong_says_so_and_can_be_replaced(
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


def test_a_new_override_replaces_an_earlier_one_whose_stage_is_missing(
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

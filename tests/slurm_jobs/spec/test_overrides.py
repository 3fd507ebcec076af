from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load
from slurm_jobs.spec.overrides import apply_overrides
from slurm_jobs.spec.yaml import read_yaml

Check = Callable[..., list[str]]

TEXT = """\
name: a
cluster: local
setup: [one, two]
stages:
  train:
    shell: x
    config:
"""


def values(*overrides: str) -> object:
    document = apply_overrides(read_yaml(TEXT, "f"), overrides)
    assert document.problems == ()
    return document.value


def problem(override: str) -> str:
    (found,) = apply_overrides(read_yaml(TEXT, "f"), [override]).problems
    return str(found)


def test_a_value_is_read_as_yaml() -> None:
    value = values("stages.train.resources.nodes=2", "stages.train.config={lr: 1e-4, b: [1, 2]}")
    stage = value["stages"]["train"]  # type: ignore[index]
    assert stage["resources"] == {"nodes": 2}
    assert stage["config"] == {"lr": 1e-4, "b": [1, 2]}


def test_missing_and_empty_keys_on_the_way_are_made() -> None:
    value = values("stages.train.config.model.vision.num_layers=2")
    assert value["stages"]["train"]["config"] == {"model": {"vision": {"num_layers": 2}}}  # type: ignore[index]


def test_a_place_of_a_list_can_be_set() -> None:
    assert values("setup.1=three")["setup"] == ["one", "three"]  # type: ignore[index]


def test_the_place_after_the_last_appends() -> None:
    assert values("setup.2=three", "setup.3=four")["setup"] == ["one", "two", "three", "four"]  # type: ignore[index]


def test_a_missing_list_is_made_for_its_place_0() -> None:
    value = values("code.0=helpers", "stages.train.setup.0=module load cuda")
    assert value["code"] == ["helpers"]  # type: ignore[index]
    assert value["stages"]["train"]["setup"] == ["module load cuda"]  # type: ignore[index]


def test_the_last_of_two_wins() -> None:
    assert values("name=b", "name=c")["name"] == "c"  # type: ignore[index]


def test_a_value_may_hold_an_equals_sign() -> None:
    assert values("stages.train.shell=A=1 x")["stages"]["train"]["shell"] == "A=1 x"  # type: ignore[index]


def test_a_new_stage_can_be_given_whole() -> None:
    assert "extra" in values("stages.extra={shell: make}")["stages"]  # type: ignore[index]


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
    ],
)
def test_what_cannot_be_set_is_told_at_the_option(override: str, message: str) -> None:
    line = problem(override)
    assert line.startswith(f"--set {override}: ")
    assert message in line


def test_a_wrong_value_is_reported_at_the_option_and_not_at_the_file(check: Check) -> None:
    lines = check(TEXT.replace("config:", "retries: 1"), overrides=("stages.train.retries=x",))
    assert lines == [
        (
            "--set stages.train.retries=x: stages.train.retries: expected a whole number, "
            "found the text `x`"
        )
    ]


@pytest.mark.parametrize(
    "override",
    ["stages.train.config.num_epochs=2", "stages.train.config.reader=webdataset"],
)
def test_of_keys_that_contradict_each_other_the_one_that_was_set_is_told(
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


def test_an_override_mends_what_the_file_has_wrong(check: Check) -> None:
    text = TEXT.replace("config:", "retries: many")
    assert len(check(text)) == 1
    assert check(text, overrides=("stages.train.retries=2",)) == []


def test_limit_becomes_a_value_of_the_spec(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    (tmp_path / "mine.py").write_text("def work(context):\n    return None\n")
    file.write_text(TEXT.replace("    shell: x\n    config:\n", "    run: mine:work\n"))
    loaded = load(file, limit=500)
    assert loaded.spec.limit == 500
    assert loaded.overrides == ("limit=500",)


def test_a_limit_that_no_stage_takes_is_refused_where_it_is_typed(check: Check) -> None:
    text = TEXT.replace("    config:\n", "")
    (line,) = check(text, overrides=("limit=5",))
    assert line.startswith("--set limit=5: limit: no stage of this spec takes it: `run: preproc")
    assert check(text, overrides=("limit=null",)) == []
    assert check(f"limit: 5\n{text}") == []
    (line,) = check(text, overrides=("limit=x",))
    assert "no stage" not in line
    (line,) = check(text.replace("shell: x", "run: preproces"), overrides=("limit=5",))
    assert "no stage" not in line


def test_the_document_given_is_not_changed() -> None:
    document = read_yaml(TEXT, "f")
    apply_overrides(document, ["name=b"])
    assert document.value["name"] == "a"


def test_a_time_that_is_set_is_told_in_the_unit_of_its_key() -> None:
    document = apply_overrides(read_yaml("a: {}", "f"), ["a.timeout_min=12:00:00"])
    (problem,) = document.problems
    assert problem.message.endswith("`timeout_min` counts minutes: write 720")

from collections.abc import Callable
from pathlib import Path

import pytest

Check = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  t:
    run: train
    config:
      device: cpu
      strategy: single
      num_steps: 1
      dataset: {dataset}
"""


@pytest.mark.parametrize(
    ("files", "dataset", "remedy"),
    [
        (("d/index.arrow",), "d", "give the folder that `consolidate` wrote (data/STAGE of a run)"),
        (("d/index.arrow",), "d", "is named `${STAGE.output_dir}`"),
        (("d/dataset.json", "d/shards/shard-000000.tar"), "d/shards", "give d"),
        (("d/dataset.json",), "d/dataset.json", "give d"),
        (("rows.jsonl",), "rows.jsonl", "give "),
        (
            ("runs/a/data/consolidate/dataset.json",),
            "runs/a",
            "it is a run: give runs/a/data/consolidate",
        ),
    ],
)
def test_what_is_no_finished_data_set_is_refused_at_its_line(
    check: Check, tmp_path: Path, files: tuple[str, ...], dataset: str, remedy: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (line,) = check(SPEC.format(dataset=dataset))
    told = f"10:16: stages.t.config.dataset: {dataset} is no finished data set, it has no "
    assert line.startswith(f"{told}dataset.json; ")
    assert remedy in line


def test_a_finished_data_set_and_one_that_a_stage_makes_have_no_problem(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "dataset.json").write_text("{}")
    assert check(SPEC.format(dataset="d")) == []
    made = SPEC.format(dataset="'${m.output_dir}'").replace("    run", "    after: m\n    run")
    assert check(f"{made}  m: {{shell: make}}\n") == []


def test_a_data_set_that_is_nowhere_is_one_problem(check: Check) -> None:
    (line,) = check(SPEC.format(dataset="gone"))
    assert line.startswith("10:16: stages.t.config.dataset: nothing at gone")


def test_the_data_set_of_a_phase_is_looked_at_too(check: Check, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    phases = "phases: [{name: one, num_steps: 1}, {name: two, num_steps: 1, dataset: d}]"
    (line,) = check(SPEC.format(dataset=".").replace("num_steps: 1\n", f"{phases}\n"))
    assert line.startswith("9:78: stages.t.config.phases[1].dataset: d is no finished data set")

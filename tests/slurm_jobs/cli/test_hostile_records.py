"""Runs whose records have values that no submit writes: a list of runs shows the others."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.command import fixed_surroundings
from tests.golden.stored_runs import unpack
from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.edited_records import HUGE, edit
from tests.slurm_jobs.cli.test_planted_files import ANOTHER, LIMIT_S, limited, words_of


def newest_plan(run_dir: Path) -> Path:
    return max((run_dir / "plans").iterdir())


def first_stage(**changes: Any) -> Callable[[Path], None]:
    return lambda run: edit(newest_plan(run), lambda plan: plan["stages"][0].update(changes))


def meta(**changes: Any) -> Callable[[Path], None]:
    return lambda run: edit(run / "run.json", lambda values: values.update(changes))


def intent_of_very_many_slices(run_dir: Path) -> None:
    for path in sorted((run_dir / "ledger").iterdir()):
        if json.loads(path.read_text())["kind"] == "intent":
            edit(path, lambda values: values.update(slices=f"0-{HUGE}"))


def intent_of_the_same_slices_very_often(run_dir: Path) -> None:
    for path in sorted((run_dir / "ledger").iterdir()):
        if json.loads(path.read_text())["kind"] == "intent":
            edit(path, lambda values: values.update(slices="0-999999," * 1000 + "0"))


def cancellation_of_very_many_slices(run_dir: Path) -> None:
    paths = sorted((run_dir / "ledger").iterdir())
    values = [json.loads(path.read_text()) for path in paths]
    token = next(v["token"] for v in values if v["kind"] == "intent")
    entry = {"kind": "cancelled", "token": token, "slices": f"0-{HUGE}", "time_unix_s": 1.0}
    paths[-1].with_name(f"{len(paths) + 1:06d}.json").write_text(json.dumps(entry))


def stages_in_a_circle(run_dir: Path) -> None:
    def change(plan: Any) -> None:
        one, two = plan["stages"][:2]
        one["after"], two["after"] = {two["name"]: "afterok"}, {one["name"]: "afterok"}

    edit(newest_plan(run_dir), change)


def a_stage_very_often(run_dir: Path) -> None:
    edit(newest_plan(run_dir), lambda plan: plan["stages"].extend(plan["stages"] * 1000))


def numbers_far_beyond_the_others(run_dir: Path) -> None:
    shutil.copy(run_dir / "plans" / "0001.json", run_dir / "plans" / f"{HUGE}.json")
    shutil.copy(run_dir / "ledger" / "000001.json", run_dir / "ledger" / f"{HUGE}.json")


def attempts_on_very_many_nodes(run_dir: Path) -> None:
    for path in (run_dir / "attempts").rglob("*.json"):
        edit(path, lambda values: values.update(node_names=["n"] * 200_000))


def moments_before_all_time(run_dir: Path) -> None:
    for path in (run_dir / "completions").rglob("*.json"):
        edit(path, lambda values: values.update(ended_unix_s=-1e308))


def very_many_spans(run_dir: Path) -> None:
    for path in (run_dir / "timing").rglob("*.spans.jsonl"):
        path.write_text('{"name":"x","start_unix_s":1,"duration_s":1}\n' * 500_000)


def jobs_with_other_fields(run_dir: Path) -> None:
    for path in (run_dir / "local" / "jobs").iterdir():
        edit(path, lambda values: values.update(slices="0-9"))


ATTACKS: dict[str, Callable[[Path], None]] = {
    **{f"created {value!r}": meta(created_unix_s=value) for value in ("x", [1], None, 1e300)},
    **{f"uid {value!r}": meta(uid=value) for value in ("root", [0], -1)},
    **{f"scheduler {value!r}": meta(scheduler=value) for value in ("../../x", ["slurm"], 5)},
    "name": meta(run_id={"a": 1}, name=5),
    "nested": lambda run: (run / "run.json").write_text("[" * 100_000),
    "digits": lambda run: (run / "run.json").write_text('{"a": ' + "9" * 5_000_000 + "}"),
    **{f"slices {value!r}": first_stage(num_slices=value) for value in (HUGE, -5, 1e300, "3")},
    "parent": first_stage(after={"nosuch": "afterok"}),
    "stage elsewhere": first_stage(name="../../../../../../../proc"),
    "origin": first_stage(origin={"a": 1}, run=["x"]),
}


for _attack in (
    *(intent_of_very_many_slices, intent_of_the_same_slices_very_often),
    *(cancellation_of_very_many_slices, stages_in_a_circle, a_stage_very_often),
    *(numbers_far_beyond_the_others, attempts_on_very_many_nodes, moments_before_all_time),
    *(very_many_spans, jobs_with_other_fields),
):
    ATTACKS[_attack.__name__.replace("_", " ")] = _attack


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_run_with_impossible_values_ends_no_command_of_others(
    attack: str, command: Command, tmp_path: Path
) -> None:
    run_dir = unpack("finished", tmp_path / "one")
    shutil.copytree(run_dir, run_dir.with_name(ANOTHER))
    ATTACKS[attack](run_dir)
    with fixed_surroundings(tmp_path):
        for words in words_of(run_dir):
            begin_s = time.process_time()
            with limited(2 * LIMIT_S):
                ended = command(*words)
            assert time.process_time() - begin_s < LIMIT_S
            assert "Traceback" not in ended.out + ended.err
            assert len(ended.out + ended.err) < 100_000
            if words[0] == "runs":
                assert ANOTHER in ended.out

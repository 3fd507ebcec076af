import dataclasses
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import (
    CompletionName,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run.prepare_resume import Trouble, adjusted, split_nodes, trouble_of
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.spec.model import OnResume
from slurm_jobs.status.run_status import StageStatus
from slurm_jobs.status.slice_status import SliceStatus
from tests.slurm_jobs.runs import intent, job, stage
from tests.slurm_jobs.worker.orders import order

ASKED = JobResources(
    nodes=1, tasks_per_node=1, cpus_per_task=1, gpus_per_node=0, gpu=(), mem_gb=8.0,
    timeout_min=60, signal_lead_s=60, slurm={},
)  # fmt: skip
ALL = OnResume(raise_mem_gb=1.5, raise_timeout_min=2, exclude_failed_nodes=True)


def failed(*states: str | None) -> StageStatus:
    """Slices in these states of Slurm's; None: completed."""
    slices = tuple(
        SliceStatus(
            slice_index=index,
            status="completed" if state is None else "failed",
            source="sacct",
            state=state,
            job=job(f"12_{index}"),
        )
        for index, state in enumerate(states)
    )
    return StageStatus(stage=stage("a", len(states)), status="failed", slices=slices)


def submitted(paths: RunPaths, mem_gb: list[float], slices_per_task: int = 1) -> dict[int, Intent]:
    """A job a slice, with this memory and an hour."""
    for index, gb in enumerate(mem_gb):
        asked = dataclasses.replace(ASKED, mem_gb=gb)
        made = dataclasses.replace(order(), resources=asked, slices_per_task=slices_per_task)
        paths.job_json(f"t{index}").parent.mkdir(parents=True)
        write_json_atomic(paths.job_json(f"t{index}"), order_to_json(made))
    return {i: intent(i + 1, "a", None, token=f"t{i}", slices=(i,)) for i in range(len(mem_gb))}


def test_causes_of_failed_slices_come_from_slurm_and_from_their_records(
    tmp_path: Path,
) -> None:
    paths, name = RunPaths(tmp_path), CompletionName(3, 1, "t3", "failed")
    record = CompletionRecord(
        stage="a", slice_index=3, attempt=1, job_id="12_3", token="t3", outcome="failed",
        fingerprint="f", started_unix_s=0.0, ended_unix_s=1.0, exit_code=1, failed_node="n5",
    )  # fmt: skip
    paths.completion("a", name).parent.mkdir(parents=True)
    write_json_atomic(paths.completion("a", name), record_to_json(record))
    tasks = {
        job(f"12_{index}"): TaskAccounting(job_id="12", state="X", source="sacct", node_list=nodes)
        for index, nodes in enumerate(("n0", "n1", "n[2-3]", "n4"))
    }
    met = failed(None, "OUT_OF_MEMORY", "NODE_FAIL", "FAILED")
    last = dataclasses.replace(met.slices[3], ending=name)
    found = trouble_of(
        paths,
        submitted(paths, [3.0, 6.0, 9.0, 9.0]),
        dataclasses.replace(met, slices=(*met.slices[:3], last)),
        Answer(tasks=tasks),
    )
    assert found == Trouble(out_of_memory=True, mem_gb=6.0, nodes=("n1", "n[2-3]", "n5"))


def test_a_slice_that_reached_its_limit_had_its_share_of_the_tasks(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    newest = submitted(paths, [8.0, 8.0], slices_per_task=4)
    found = trouble_of(paths, newest, failed("TIMEOUT", None), Answer())
    assert found == Trouble(out_of_time=True, timeout_min=15.0)


@pytest.mark.parametrize(
    ("trouble", "last", "expected", "said"),
    [
        (Trouble(), {}, (8, 60, None), []),
        (Trouble(out_of_memory=True), {}, (12, 60, None), ["mem_gb 8 -> 12 (out of memory)"]),
        (
            Trouble(out_of_memory=True, out_of_time=True),
            {"mem_gb": 12.0, "timeout_min": 60},
            (18, 120, None),
            ["mem_gb 12 -> 18 (out of memory)", "timeout_min 60 -> 120 (out of time)"],
        ),
        # Raised is what failed: a plan that was written and never submitted raises nothing more.
        (
            Trouble(out_of_memory=True, mem_gb=8.0, out_of_time=True, timeout_min=60),
            {"mem_gb": 12.0, "timeout_min": 120},
            (12, 120, None),
            ["mem_gb 8 -> 12 (out of memory)", "timeout_min 60 -> 120 (out of time)"],
        ),
        # What was raised once stays so, also where the next failure is another.
        (Trouble(), {"mem_gb": 12.0, "timeout_min": 240}, (12, 240, None), []),
        (
            Trouble(nodes=("n1", "n[2,4]")),
            {"slurm": {"exclude": "n1,n9"}},
            (8, 60, "n1,n9,n[2,4]"),
            ["without n[2,4] (failed there)"],
        ),
    ],
)
def test_the_next_job_asks_for_what_the_spec_wishes_after_such_a_failure(
    trouble: Trouble,
    last: dict[str, Any],
    expected: tuple[float, float, str | None],
    said: list[str],
) -> None:
    resources, changes = adjusted(ASKED, ALL, trouble, last)
    exclude = resources.slurm.get("exclude")
    assert (resources.mem_gb, resources.timeout_min, exclude) == expected
    assert changes == said


def test_without_a_wish_nothing_changes_whatever_was_met() -> None:
    trouble = Trouble(out_of_memory=True, out_of_time=True, nodes=("n1",))
    last = {"mem_gb": 99.0, "timeout_min": 999, "slurm": {"exclude": "n7"}}
    assert adjusted(ASKED, OnResume(), trouble, last) == (ASKED, [])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b[1,3-5],c", ["a", "b[1,3-5]", "c"]),
        ("a[1][2,3],b", ["a[1][2,3]", "b"]),
    ],
)
def test_node_lists_are_taken_apart_outside_of_brackets(text: str, names: list[str]) -> None:
    assert split_nodes(text) == names


def test_what_the_user_sets_by_hand_is_taken_as_it_is() -> None:
    trouble = Trouble(out_of_memory=True, out_of_time=True)
    last = {"mem_gb": 64.0, "timeout_min": 720}
    resources, changes = adjusted(ASKED, ALL, trouble, last, by_hand={"mem_gb"})
    assert (resources.mem_gb, resources.timeout_min) == (8, 1440)
    assert changes == ["timeout_min 720 -> 1440 (out of time)"]

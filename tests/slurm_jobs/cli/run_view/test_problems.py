"""What is offered as the next command when something is wrong."""

import dataclasses
import json
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.job_states import NEVER
from slurm_jobs.status.run_status import RunStatus, StageStatus
from slurm_jobs.worker.attempt_notes import write_rank_note
from tests.slurm_jobs.cli.statuses import stage
from tests.slurm_jobs.formats.records.whole_records import COMPLETION
from tests.slurm_jobs.runs import job


@pytest.fixture(autouse=True)
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """The folder of the run, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return RunPaths(tmp_path / "run")


def lines_of(*stages: StageStatus, folder: str = "run") -> list[str]:
    status = RunStatus(status="failed", stages=stages, asked_unix_s=1.0)
    return problem_lines(Path.cwd() / folder, status)


def resume(*options: str) -> str:
    return command_text("resume", "run", *options)


def after(parent: str, below: StageStatus) -> StageStatus:
    summary = dataclasses.replace(below.stage, after={parent: "afterok"})
    return dataclasses.replace(below, stage=summary)


def write_log(log: Path, text: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)


def write_stage(paths: RunPaths, **values: object) -> None:
    """Write the resolved spec with a stage `a`."""
    paths.resolved_spec.parent.mkdir(parents=True)
    paths.resolved_spec.write_text(json.dumps({"stages": {"a": values}}))


FAILED = stage("a", ["failed", "failed"])


def test_logs_are_offered_of_the_first_failure_that_has_one(paths: RunPaths) -> None:
    """Where nothing ever ran, as after a refused submission, there are none."""
    assert lines_of(FAILED)[-1] == f"next: {resume()}"
    write_log(paths.rank_log("a", 1, 1, 0), "no such file\n")
    shown = command_text("logs", "run", "a", "--slice", "1")
    assert lines_of(FAILED)[-2:] == [f"next: {shown}", f"then: {resume()}"]


def test_the_supervisors_log_is_offered_where_a_slice_has_no_record(
    paths: RunPaths,
) -> None:
    log = paths.job_log("a", "7")
    write_log(log, "OSError: [Errno 28] No space left on device\n")
    shown = command_text("logs", "run", "a", "--slice", "0")
    assert f"next: {shown}" in lines_of(FAILED)  # shown unasked
    paths.rank_log("a", 0, 1, 0).write_text("")
    assert f"next: {shown} --supervisor" in lines_of(FAILED)
    log.write_text("")
    assert f"next: {shown}" in lines_of(FAILED)


def test_where_a_killed_stage_was_is_shown_without_a_record_of_its_end(paths: RunPaths) -> None:
    text = "2 s after SIGTERM rank 0 on n1 was at run (forks.py:9), in join"
    folder = paths.task_dir("a", 0, 1)
    folder.mkdir(parents=True)
    write_json_atomic(folder / "ignored-end.json", {"text": text})
    limit = "reached its time limit of 5 min (resources.timeout_min)"
    part = stage("a", ["failed"], reason=limit, state="TIMEOUT", attempt=1)
    assert lines_of(part)[0].endswith(f": {limit}; {text}")


def test_where_an_idle_slice_waits_is_shown_while_it_runs(paths: RunPaths) -> None:
    for index in range(2):
        paths.task_dir("a", index, 1).mkdir(parents=True)
    text = "rank 3 on n1 has used almost no processor time for 10 min: it was at run (own.py:9)"
    for rank in (3, 5):
        write_json_atomic(
            paths.task_dir("a", 1, 1) / f"rank-{rank:05d}.idle.json",
            {"text": text.replace("rank 3", f"rank {rank}")},
        )
    lines = lines_of(stage("a", ["running", "running"], attempt=1))
    assert lines == [f"a slice 1 runs, but {text} (and 1 more idle)"]


def test_where_cancelled_slices_were_is_one_line_if_it_is_one_place(paths: RunPaths) -> None:
    for index, node in enumerate(("n1", "n2", "n1")):
        folder = paths.task_dir("a", index, 1)
        folder.mkdir(parents=True)
        line = 12 if index == 2 else 9
        after = f" was at run (forks.py:{line})"
        note = RankNote(rank=0, node=node, after=after, stacks=f"{folder}/rank-*")
        write_rank_note(folder / "ignored-end.json", note)
    first, last = paths.task_dir("a", 0, 1), paths.task_dir("a", 2, 1)
    lines = lines_of(stage("a", ["cancelled"] * 3, cause="cancelled here", attempt=1))
    where = "cancelled, with a note: rank 0 on"
    assert lines[:3] == [
        "cancelled by `slurm-jobs cancel`: a slices 0-2",
        f"a slices 0-1 {where} n1, n2 was at run (forks.py:9). Stacks: {first}/rank-*",
        f"a slice 2 {where} n1 was at run (forks.py:12). Stacks: {last}/rank-*",
    ]


def test_equal_notes_of_completed_slices_are_one_line_with_all_nodes(paths: RunPaths) -> None:
    slices = []
    for part in stage("a", ["completed"] * 3).slices:
        index = part.slice_index
        note = RankNote(rank=0, node=f"n{index}", after=": its process was ended")
        values = {"stage": "a", "slice_index": index, "outcome": "completed", "exit_code": 0}
        values |= {"reason": note.text, "rank_note": note if index < 2 else None}
        record = dataclasses.replace(COMPLETION, **values)
        ending = CompletionName(index, 1, "t-a-1", "completed")
        paths.completions_dir("a").mkdir(parents=True, exist_ok=True)
        write_json_atomic(paths.completion("a", ending), record_to_json(record))
        slices.append(dataclasses.replace(part, ending=ending))
    lines = lines_of(dataclasses.replace(stage("a", ["completed"] * 3), slices=tuple(slices)))
    assert lines[:2] == [
        "a slices 0-1 completed, with a note: rank 0 on n0, n1: its process was ended",
        "a slice 2 completed, with a note: rank 0 on n2: its process was ended",
    ]


def test_notes_of_an_earlier_version_are_shown_one_by_one(paths: RunPaths) -> None:
    for index in range(2):
        folder = paths.task_dir("a", index, 1)
        folder.mkdir(parents=True)
        write_json_atomic(folder / "rank-00000.started.json", {"node": "n1"})
        write_json_atomic(folder / "ignored-end.json", {"text": "rank 0 on n1 was at run"})
    lines = lines_of(stage("a", ["cancelled"] * 2, cause="cancelled here", attempt=1))
    assert lines[1:3] == [
        "a slice 0 cancelled, with a note: rank 0 on n1 was at run",
        "a slice 1 cancelled, with a note: rank 0 on n1 was at run",
    ]


@pytest.mark.parametrize(
    ("state", "limit", "on_resume", "cause", "sets"),
    [
        ("OUT_OF_MEMORY", {"mem_gb": 4.0}, None, None, ["mem_gb=6"]),
        ("OUT_OF_MEMORY", {"mem_gb": 4.0}, {"exclude_failed_nodes": True}, None, ["mem_gb=6"]),
        ("OUT_OF_MEMORY", {"mem_gb": 4.0}, {"raise_mem_gb": 2.0}, None, []),
        ("TIMEOUT", {"timeout_min": 30}, None, None, ["timeout_min=60"]),
        ("TIMEOUT", {"timeout_min": 30}, {"raise_timeout_min": 2.0}, None, []),
        ("TIMEOUT", {"timeout_min": 30}, None, "stopped and left", []),
    ],
)
def test_a_stage_at_its_limit_is_offered_more_unless_a_resume_raises_it(
    paths: RunPaths, *, state: str, limit: object, on_resume: object, cause: object, sets: list[str]
) -> None:
    write_stage(paths, resources=limit, on_resume=on_resume)
    options = [word for key in sets for word in ("--set", f"stages.a.resources.{key}")]
    reached = stage("a", ["failed", "failed"], state=state, cause=cause)
    assert lines_of(reached)[-1] == f"next: {resume(*options)}"


def test_more_is_offered_for_the_slices_that_reached_their_limit(paths: RunPaths) -> None:
    write_stage(paths, resources={"timeout_min": 30, "mem_gb": 4.0}, on_resume=None)
    failed = stage("a", ["failed"] * 4)
    states = ("TIMEOUT", "FAILED", "TIMEOUT", "OUT_OF_MEMORY")
    slices = tuple(
        dataclasses.replace(part, state=state)
        for part, state in zip(failed.slices, states, strict=True)
    )
    more_time = "stages.a[0,2].resources.timeout_min=60"
    more_memory = "stages.a[3].resources.mem_gb=6"
    shown = resume("--set", more_time, "--set", more_memory)
    assert lines_of(dataclasses.replace(failed, slices=slices))[-1] == f"next: {shown}"


def test_more_than_a_slice_requested_of_its_own_is_offered(paths: RunPaths) -> None:
    write_stage(paths, resources={"timeout_min": 30}, on_resume=None)
    earlier = ["stages.a[1].resources.timeout_min=50"]
    write_json_atomic(paths.spec_origin, {"slice_overrides": earlier})
    failed = stage("a", ["completed", "failed"], state="TIMEOUT")
    shown = resume("--set", "stages.a[1].resources.timeout_min=100")
    assert lines_of(failed)[-1] == f"next: {shown}"


LIMIT = "reached its time limit of 5 min (resources.timeout_min)"


@pytest.mark.parametrize(
    ("above", "why"),
    [
        (
            stage("a", ["completed"], state="TIMEOUT", reason=LIMIT),
            (
                "`a` is complete by its records, but the scheduler counts its job as TIMEOUT, as "
                "its process reached its time limit of 5 min before it ended: raise "
                "stages.a.resources.timeout_min"
            ),
        ),
        (  # an array task's node was lost after its last record was written
            stage("a", ["completed", "completed"]),
            "its parents are complete by their records, but not for the scheduler",
        ),
    ],
)
def test_a_resume_is_offered_if_the_scheduler_calls_complete_work_failed(
    above: StageStatus, why: str
) -> None:
    lines = lines_of(above, after("a", stage("b", ["stranded"], reason=NEVER, wait="unmet")))
    assert lines == [f"b stranded: {why}", f"next: {resume()}"]


def test_what_the_user_cancelled_is_one_line() -> None:
    ours = {"state": "CANCELLED", "reason": "by `slurm-jobs cancel`", "cause": "cancelled here"}
    stages = (stage("a", ["cancelled"] * 3, **ours), stage("b", ["cancelled"], **ours))
    line = "cancelled by `slurm-jobs cancel`: a slices 0-2, b"
    assert lines_of(*stages) == [line, f"next: {resume()}"]


def test_what_the_user_cancelled_and_still_runs_is_named() -> None:
    ending = stage("a", ["running"] * 2, cause="cancelled here")
    lines = lines_of(ending, stage("b", ["running"]))
    assert "cancelled, and still ending: a slices 0-1" in lines


def test_no_resume_is_offered_for_what_is_not_needed() -> None:
    below = stage("b", ["stranded"], reason="not needed: `a` completed")
    assert lines_of(stage("a", ["completed"]), after("a", below)) == []


NEEDS_OTHERS = (
    ": job 7 needs other settings; give them to the resume with `--set KEY=VALUE` or "
    "`--update-spec`"
)
BY_ADMIN = ": only an administrator can release it (`scontrol release 7`)"


@pytest.mark.parametrize(
    ("wait", "reason", "line", "way_on"),
    [
        ("held", "held (JobHeldUser)", ": `scontrol release 7` lets it start", "or"),
        ("held_by_admin", "held by an administrator (JobHeldAdmin)", BY_ADMIN, "or"),
        ("never", "can never start (InvalidQOS)", NEEDS_OTHERS, "next"),
    ],
)
def test_of_a_job_that_waiting_does_not_start_the_way_on_is_shown(
    wait: str, reason: str, line: str, way_on: str
) -> None:
    below = after("a", stage("b", ["stranded"], reason=f"`a` {reason}"))
    last = f"{way_on}: {resume()}"
    last += " (cancels it, and submits it again)" if way_on == "or" else ""
    above = stage("a", ["stranded"], wait=wait, reason=reason)
    assert lines_of(above, below) == [f"a {reason}{line}", last]


def test_elements_that_are_held_are_released_with_one_command() -> None:
    held = stage("a", ["stranded"] * 4, wait="held", reason="held (JobHeldUser)")
    slices = tuple(
        dataclasses.replace(part, job=job(f"7_{part.slice_index}"), wait="" if n == 1 else "held")
        for n, part in enumerate(held.slices)
    )
    assert lines_of(dataclasses.replace(held, slices=slices))[0] == (
        "a slices 0,2-3 held (JobHeldUser): `scontrol release 7_[0,2-3]` lets it start"
    )


def test_a_job_that_waits_for_an_administrator_is_named() -> None:
    blocked = stage("a", ["waiting"], wait="blocked", reason="PartitionDown: its partition is down")
    (line,) = lines_of(blocked)
    assert line == (
        "a cannot start (PartitionDown: its partition is down) until an administrator changes "
        "that: job 7"
    )

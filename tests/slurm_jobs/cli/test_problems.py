"""What is offered as the next command when something is wrong."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from slurm_jobs.cli.options import command_text
from slurm_jobs.cli.problems import problem_lines
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.protocol import NEVER
from slurm_jobs.status import STOPPED_AND_LEFT, RunStatus, StageStatus
from tests.slurm_jobs.cli.statuses import stage


@pytest.fixture
def failed() -> RunStatus:
    return RunStatus(status="failed", stages=(stage("a", ["failed", "failed"]),), asked_unix_s=1.0)


def test_logs_are_offered_of_the_first_failure_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: RunStatus
) -> None:
    monkeypatch.chdir(tmp_path)
    log = RunPaths(tmp_path / "run").rank_log("a", 1, 1, 0)
    log.parent.mkdir(parents=True)
    log.write_text("no such file\n")
    assert problem_lines(tmp_path / "run", failed)[-2:] == [
        f"next: {command_text('logs', 'run', 'a', '--slice', '1')}",
        f"then: {command_text('resume', 'run')}",
    ]


def test_the_supervisors_log_is_offered_where_a_slice_failed_without_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: RunStatus
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = RunPaths(tmp_path / "run")
    log = paths.job_log("a", "7")
    log.parent.mkdir(parents=True)
    log.write_text("OSError: [Errno 28] No space left on device\n")
    shown = command_text("logs", "run", "a", "--slice", "0")
    assert f"next: {shown}" in problem_lines(tmp_path / "run", failed)  # shown unasked
    paths.rank_log("a", 0, 1, 0).write_text("")
    assert f"next: {shown} --supervisor" in problem_lines(tmp_path / "run", failed)
    log.write_text("")
    assert f"next: {shown}" in problem_lines(tmp_path / "run", failed)


def test_no_logs_are_offered_where_nothing_ever_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: RunStatus
) -> None:
    """So it is after a refused submission."""
    monkeypatch.chdir(tmp_path)
    assert problem_lines(tmp_path / "run", failed)[-1] == f"next: {command_text('resume', 'run')}"


def test_what_a_reason_says_to_set_in_a_resume_stands_in_the_command_that_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = ["--set", "stages.a.config.budget_min=6", "--set", "stages.a.resources.timeout_min=21"]
    reason = f"too small; give more, or `slurm-jobs resume {tmp_path}/run {' '.join(sets)}`"
    status = RunStatus(
        status="failed", stages=(stage("a", ["failed"], reason=reason),), asked_unix_s=1.0
    )
    shown = f"next: {command_text('resume', 'run', *sets)}"
    assert problem_lines(tmp_path / "run", status)[-1] == shown


def test_a_key_is_offered_once_and_shares_that_slices_lost_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    setting = "stages.a.config.max_reject_share=0.025"
    reason = f"5 of 200 rows cannot be used; `slurm-jobs resume {tmp_path}/run --set {setting}`"
    status = RunStatus(
        status="failed", stages=(stage("a", ["failed"] * 4, reason=reason),), asked_unix_s=1.0
    )
    shown = command_text("resume", "run", "--set", "stages.a.config.max_reject_share=0.1")
    assert problem_lines(tmp_path / "run", status)[-1] == f"next: {shown}"


@pytest.mark.parametrize(
    ("on_resume", "sets"),
    [
        (None, ["--set", "stages.a.resources.mem_gb=6"]),
        ({"exclude_failed_nodes": True}, ["--set", "stages.a.resources.mem_gb=6"]),
        ({"raise_mem_gb": 2.0}, []),
    ],
)
def test_more_memory_is_offered_to_a_stage_that_ran_out_of_it_unless_a_resume_raises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_resume: object, sets: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = RunPaths(tmp_path / "run")
    paths.resolved_spec.parent.mkdir(parents=True)
    spec = {"stages": {"a": {"resources": {"mem_gb": 4.0}, "on_resume": on_resume}}}
    paths.resolved_spec.write_text(json.dumps(spec))
    killed = stage("a", ["failed", "failed"], state="OUT_OF_MEMORY")
    status = RunStatus(status="failed", stages=(killed,), asked_unix_s=1.0)
    shown = f"next: {command_text('resume', 'run', *sets)}"
    assert problem_lines(tmp_path / "run", status)[-1] == shown


@pytest.mark.parametrize("name", ["my run", "it's", 'so "called"'])
def test_what_has_to_be_set_is_offered_where_the_run_folder_needs_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = ["--set", "stages.a.config.budget_min=6", "--set", "stages.a.resources.timeout_min=21"]
    folder = shlex.quote(str(tmp_path / name))
    reason = f"too small; give more, or `slurm-jobs resume {folder} {' '.join(sets)}`"
    status = RunStatus(
        status="failed", stages=(stage("a", ["failed"], reason=reason),), asked_unix_s=1.0
    )
    shown = f"next: {command_text('resume', name, *sets)}"
    assert problem_lines(tmp_path / name, status)[-1] == shown


def test_a_config_that_was_refused_is_to_be_fixed_before_the_same_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reason = "rank 0 on local0: StageConfigError: num_epochs is 1.0: give more"
    status = RunStatus(
        status="failed", stages=(stage("a", ["failed"], reason=reason),), asked_unix_s=1.0
    )
    fix, following = problem_lines(tmp_path / "run", status)[-2:]
    assert fix.startswith("fix the spec's file")
    assert following == f"next: {command_text('resume', 'run', '--update-spec')}"


REFUSED = "rank 0 on local0: StageConfigError: "
AGAIN = "`slurm-jobs resume RUN --again prep`"
SHARE = "--set stages.c.config.max_reject_share=0.25"
ROOT = "--set stages.a.config.image_root=FOLDER"


BY_SHARE = f"/m.csv: bad rows; fix these, then {AGAIN}, or `slurm-jobs resume RUN {SHARE}`"


@pytest.mark.parametrize(
    ("run", "reason", "ways"),
    [
        ("m:f", f"{REFUSED}`run: m:f`: a stage returns a dict of JSON values", ["--update-code"]),
        ("m:f", f"{REFUSED}`run: m:f`: /u/m.py has no function `f`", ["--update-code"]),
        ("m:f", "rank 0 on n1: NameError: name 'x' is not defined", ["--update-code"]),
        ("m:f", "rank 0 on n1: SyntaxError: invalid syntax (m.py, line 3)", ["--update-code"]),
        ("m:f", "rank 0 on n1: ValueError: no number", [""]),
        ("shell", "rank 0 on n1 ended with exit code 3", [""]),
        ("train", "rank 0 on n1: AttributeError: no attribute", [""]),
        ("preprocess", f"{REFUSED}/d/m.csv:3: a quote is not closed", [""]),
        ("preprocess", f"{REFUSED}/d/m.json: not valid JSON (line 1)", [""]),
        ("preprocess", f"{REFUSED}/d/m.csv: no such manifest; give its path", ["--update-spec"]),
        ("train", f"{REFUSED}batch_size 7 is no multiple of 2 ranks", ["--update-spec"]),
        ("consolidate", f"{REFUSED}{BY_SHARE}", ["--again prep", SHARE]),
        ("train", f"{REFUSED}begin with `slurm-jobs resume RUN --again STAGE`", ["--again a"]),
        ("preprocess", f"{REFUSED}/m: `slurm-jobs resume RUN {ROOT}`", ["", ROOT]),
    ],
)
def test_the_resume_that_is_offered_reads_again_what_was_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, reason: str, ways: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = stage("a", ["failed"], reason=reason)
    failed = dataclasses.replace(failed, stage=dataclasses.replace(failed.stage, run=run))
    lines = problem_lines(tmp_path / "run", RunStatus(status="failed", stages=(failed,)))
    resume = command_text("resume", "run")
    offered = [line for line in lines if line.startswith(("next:", "  or:"))]
    expected = [f"{resume} {options}".rstrip() for options in ways]
    assert offered == [f"{word} {e}" for word, e in zip(("next:", "  or:"), expected, strict=False)]


def test_one_resume_has_the_settings_of_all_stages_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [f"stages.{name}.config.max_tokens=9" for name in "ab"]
    stages = [
        stage(name, ["failed"], reason=f"too long: `slurm-jobs resume RUN --set {setting}`")
        for name, setting in zip("ab", settings, strict=True)
    ]
    stages.append(stage("c", ["failed"], reason=f"{REFUSED}batch_size 7 is no multiple of 2"))
    status = RunStatus(status="failed", stages=tuple(stages))
    sets = [word for setting in settings for word in ("--set", setting)]
    shown = f"next: {command_text('resume', 'run', *sets, '--update-spec')}"
    assert problem_lines(tmp_path / "run", status)[-1] == shown


@pytest.mark.parametrize(
    ("on_resume", "reason", "sets"),
    [
        (None, "", ["--set", "stages.a.resources.timeout_min=60"]),
        ({"raise_timeout_min": 2.0}, "", []),
        (None, STOPPED_AND_LEFT, []),
    ],
)
def test_more_time_is_offered_after_the_limit_unless_it_was_saved_or_a_resume_raises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_resume: object, reason: str, sets: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = RunPaths(tmp_path / "run")
    paths.resolved_spec.parent.mkdir(parents=True)
    spec = {"stages": {"a": {"resources": {"timeout_min": 30}, "on_resume": on_resume}}}
    paths.resolved_spec.write_text(json.dumps(spec))
    ended = stage("a", ["failed"], state="TIMEOUT", reason=reason)
    status = RunStatus(status="failed", stages=(ended,))
    assert problem_lines(tmp_path / "run", status)[-1] == (
        f"next: {command_text('resume', 'run', *sets)}"
    )


def test_a_value_that_a_reason_leaves_open_stands_in_no_command_that_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reason = f"too many; or `slurm-jobs resume {tmp_path}/run --set stages.a.config.share=SHARE`"
    status = RunStatus(
        status="failed", stages=(stage("a", ["failed"], reason=reason),), asked_unix_s=1.0
    )
    assert problem_lines(tmp_path / "run", status)[-1] == f"next: {command_text('resume', 'run')}"


def _after(parent: str, below: StageStatus) -> StageStatus:
    summary = dataclasses.replace(below.stage, after={parent: "afterok"})
    return dataclasses.replace(below, stage=summary)


def test_a_resume_is_offered_where_what_is_complete_counts_as_failed_with_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is where an array task's node was lost after its last record was written."""
    monkeypatch.chdir(tmp_path)
    stages = (
        stage("a", ["completed", "completed"]),
        _after("a", stage("b", ["stranded"], reason=NEVER)),
    )
    status = RunStatus(status="stranded", stages=stages, asked_unix_s=1.0)
    assert problem_lines(tmp_path / "run", status) == [
        "b stranded: its parents are complete by their records, failed for the scheduler",
        f"next: {command_text('resume', 'run')}",
    ]


def test_a_time_limit_that_bars_what_comes_after_complete_work_is_named_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reason = "reached its time limit of 5 min (resources.timeout_min)"
    stages = (
        stage("a", ["completed"], state="TIMEOUT", reason=reason),
        _after("a", stage("b", ["stranded"], reason=NEVER)),
    )
    status = RunStatus(status="stranded", stages=stages, asked_unix_s=1.0)
    assert problem_lines(tmp_path / "run", status) == [
        (
            "b stranded: `a` is complete by its records, but the scheduler counts its job as "
            "TIMEOUT, as its process reached its time limit of 5 min before it ended: raise "
            "stages.a.resources.timeout_min"
        ),
        f"next: {command_text('resume', 'run')}",
    ]


def test_what_the_user_cancelled_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = {"state": "CANCELLED", "reason": "cancelled"}
    stages = (stage("a", ["cancelled"] * 3, **ours), stage("b", ["cancelled"], **ours))
    status = RunStatus(status="cancelled", stages=stages, asked_unix_s=1.0)
    assert problem_lines(tmp_path / "run", status) == [
        "cancelled by `slurm-jobs cancel`: a slices 0-2, b",
        f"next: {command_text('resume', 'run')}",
    ]


def test_no_resume_is_offered_for_what_is_not_needed(tmp_path: Path) -> None:
    stages = (
        stage("a", ["completed"]),
        _after("a", stage("b", ["stranded"], reason="not needed: `a` completed")),
    )
    status = RunStatus(status="completed", stages=stages, asked_unix_s=1.0)
    assert problem_lines(tmp_path / "run", status) == []


NEEDS_OTHERS = (
    ": job 7 needs other settings; give them to the resume with `--set KEY=VALUE` or "
    "`--update-spec`"
)
BY_ADMIN = ": only an administrator can release it (`scontrol release 7`)"


@pytest.mark.parametrize(
    ("wait", "shown"),
    [
        ("held", ("held (JobHeldUser)", ": `scontrol release 7` lets it start", "or: {}")),
        ("held_by_admin", ("held by an administrator (JobHeldAdmin)", BY_ADMIN, "or: {}")),
        ("never", ("can never start (InvalidQOS)", NEEDS_OTHERS, "next: {}")),
    ],
)
def test_of_a_job_that_waiting_does_not_start_the_way_on_is_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait: str,
    shown: tuple[str, str, str],
) -> None:
    monkeypatch.chdir(tmp_path)
    reason, line, way_on = shown
    stages = (
        stage("a", ["stranded"], wait=wait, reason=reason),
        _after("a", stage("b", ["stranded"], reason=f"`a` {reason}")),
    )
    status = RunStatus(status="stranded", stages=stages, asked_unix_s=1.0)
    last = way_on.format(command_text("resume", "run"))
    last += " (cancels it, and submits it again)" if way_on.startswith("or") else ""
    assert problem_lines(tmp_path / "run", status) == [f"a {reason}{line}", last]


def test_elements_that_are_held_are_released_with_one_command(tmp_path: Path) -> None:
    held = stage("a", ["stranded"] * 4, wait="held", reason="held (JobHeldUser)")
    slices = tuple(
        dataclasses.replace(part, job_id=f"7_{part.slice_index}", wait="" if n == 1 else "held")
        for n, part in enumerate(held.slices)
    )
    status = RunStatus(status="stranded", stages=(dataclasses.replace(held, slices=slices),))
    assert problem_lines(tmp_path, status)[0] == (
        "a slice 0,2-3 held (JobHeldUser): `scontrol release 7_[0,2-3]` lets it start"
    )


def test_a_job_that_waits_for_an_administrator_is_named(tmp_path: Path) -> None:
    blocked = stage("a", ["waiting"], wait="blocked", reason="PartitionDown: its partition is down")
    status = RunStatus(status="waiting", stages=(blocked,))
    (line,) = problem_lines(tmp_path, status)
    assert line == (
        "a does not start by waiting (PartitionDown: its partition is down): job 7 starts when an "
        "administrator changes that"
    )

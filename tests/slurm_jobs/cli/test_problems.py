"""What is offered as the next command when something is wrong."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.job_states import NEVER
from slurm_jobs.shared.files import write_json_atomic
from slurm_jobs.status.run_status import RunStatus, StageStatus
from slurm_jobs.status.slice_status import STOPPED_AND_LEFT
from slurm_jobs.worker.launch import SHELL_CODES
from tests.slurm_jobs.cli.statuses import stage
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


@pytest.mark.parametrize("name", ["run", "my run", "it's", 'so "called"'])
def test_the_resume_command_contains_the_settings_that_the_reason_names(
    tmp_path: Path, name: str
) -> None:
    sets = ["--set", "stages.a.config.budget_min=6", "--set", "stages.a.resources.timeout_min=21"]
    folder = shlex.quote(str(tmp_path / name))
    reason = f"too small; give more, or `slurm-jobs resume {folder} {' '.join(sets)}`"
    shown = f"next: {command_text('resume', name, *sets)}"
    assert lines_of(stage("a", ["failed"], reason=reason), folder=name)[-1] == shown


def test_a_key_is_offered_once_and_shares_that_slices_lost_add_up() -> None:
    setting = "stages.a.config.max_reject_share=0.025"
    reason = f"5 of 200 rows cannot be used; `slurm-jobs resume RUN --set {setting}`"
    shown = resume("--set", "stages.a.config.max_reject_share=0.1")
    assert lines_of(stage("a", ["failed"] * 4, reason=reason))[-1] == f"next: {shown}"


@pytest.mark.parametrize(
    ("state", "limit", "on_resume", "reason", "sets"),
    [
        ("OUT_OF_MEMORY", {"mem_gb": 4.0}, None, "", ["mem_gb=6"]),
        ("OUT_OF_MEMORY", {"mem_gb": 4.0}, {"exclude_failed_nodes": True}, "", ["mem_gb=6"]),
        ("OUT_OF_MEMORY", {"mem_gb": 4.0}, {"raise_mem_gb": 2.0}, "", []),
        ("TIMEOUT", {"timeout_min": 30}, None, "", ["timeout_min=60"]),
        ("TIMEOUT", {"timeout_min": 30}, {"raise_timeout_min": 2.0}, "", []),
        ("TIMEOUT", {"timeout_min": 30}, None, STOPPED_AND_LEFT, []),
    ],
)
def test_a_stage_at_its_limit_is_offered_more_unless_a_resume_raises_it(
    paths: RunPaths, *, state: str, limit: object, on_resume: object, reason: str, sets: list[str]
) -> None:
    write_stage(paths, resources=limit, on_resume=on_resume)
    options = [word for key in sets for word in ("--set", f"stages.a.resources.{key}")]
    reached = stage("a", ["failed", "failed"], state=state, reason=reason)
    assert lines_of(reached)[-1] == f"next: {resume(*options)}"


NO_COMMAND = f"ended with exit code 127 (in a shell: {SHELL_CODES[127]})"
REFUSED = "rank 0 on local0: StageConfigError: "
AGAIN = "`slurm-jobs resume RUN --again prep`"
SHARE = "--set stages.c.config.max_reject_share=0.25"
ROOT = "--set stages.a.config.image_root=FOLDER"
BY_SHARE = f"/m.csv: bad rows; fix these, then {AGAIN}, or `slurm-jobs resume RUN {SHARE}`"
SETTING = "stages.a.config.max_tokens"
OPEN = "too many; or `slurm-jobs resume RUN --set stages.a.config.share=SHARE`"


@pytest.mark.parametrize(
    ("run", "reason", "ways"),
    [
        ("m:f", f"{REFUSED}`run: m:f`: a stage returns a dict of JSON values", ["--update-code"]),
        ("m:f", f"{REFUSED}`run: m:f`: /u/m.py has no function `f`", ["--update-code"]),
        ("m:f", "rank 0 on n1: NameError: name 'x' is not defined", ["--update-code"]),
        ("m:f", "rank 0 on n1: SyntaxError: invalid syntax (m.py, line 3)", ["--update-code"]),
        (
            "m:f",
            "rank 0 on n1: TypeError: f() takes 1 argument but 2 were given",
            ["--update-code"],
        ),
        ("m:f", "rank 0 on n1: TypeError: unsupported operand", [""]),
        ("m:f", "rank 0 on n1: ValueError: no number", [""]),
        ("shell", f"rank 0 on n1 {NO_COMMAND}", ["--update-spec"]),
        ("shell", "rank 0 on n1 ended with exit code 3", [""]),
        ("train", "rank 0 on n1: AttributeError: no attribute", [""]),
        ("preprocess", f"{REFUSED}/d/m.csv:3: a quote is not closed", [""]),
        ("preprocess", f"{REFUSED}/d/m.json: not valid JSON (line 1)", [""]),
        ("preprocess", f"{REFUSED}/d/m.csv: no such manifest; give its path", ["--update-spec"]),
        ("preprocess", f"{REFUSED}`run: preprocess`: No module named 'PIL' in /p", [""]),
        ("train", f"{REFUSED}batch_size 7 is not a multiple of 2 ranks", ["--update-spec"]),
        ("consolidate", f"{REFUSED}{BY_SHARE}", ["--again prep", SHARE]),
        ("train", f"{REFUSED}begin with `slurm-jobs resume RUN --again STAGE`", ["--again a"]),
        ("preprocess", f"{REFUSED}/m: `slurm-jobs resume RUN {ROOT}`", ["", ROOT]),
        ("x", OPEN, [""]),
    ],
)
def test_the_resume_that_is_offered_reads_again_what_was_at_fault(
    run: str, reason: str, ways: list[str]
) -> None:
    failed = stage("a", ["failed"], reason=reason)
    failed = dataclasses.replace(failed, stage=dataclasses.replace(failed.stage, run=run))
    lines = lines_of(failed)
    offered = [line for line in lines if line.startswith(("next:", "  or:"))]
    expected = [f"{resume()} {options}".rstrip() for options in ways]
    assert offered == [f"{word} {e}" for word, e in zip(("next:", "  or:"), expected, strict=False)]
    assert any(line.startswith("fix the spec's file") for line in lines) is (
        ways == ["--update-spec"]
    )


def test_a_value_of_an_earlier_set_is_changed_by_another_set(paths: RunPaths) -> None:
    write_stage(paths)
    write_json_atomic(paths.spec_origin, {"overrides": ["stages.a.config.size=7", "limit=3"]})
    refused = stage("a", ["failed"], reason=f"{REFUSED}size 7 is not a multiple of 2")
    assert lines_of(refused)[-1] == f"next: {resume('--set', 'stages.a.config.size=VALUE')}"


def test_a_value_set_for_another_stage_is_not_at_fault(paths: RunPaths) -> None:
    write_stage(paths)
    write_json_atomic(paths.spec_origin, {"overrides": ["stages.a.shell=exit 0"]})
    failed = stage("b", ["failed"], reason=f"rank 0 on n1 {NO_COMMAND}")
    failed = dataclasses.replace(failed, stage=dataclasses.replace(failed.stage, run="shell"))
    assert lines_of(failed)[-1] == f"next: {resume('--update-spec')}"


def test_slices_with_one_open_value_share_it(paths: RunPaths) -> None:
    write_stage(paths)
    write_json_atomic(paths.spec_origin, {"overrides": ["stages.a.config.drop_share=0.1"]})
    failed = stage("a", ["failed", "failed"], reason=f"{REFUSED}has the unknown key `drop_share`")
    assert lines_of(failed)[-1] == f"next: {resume('--set', 'stages.a.config.drop_share=VALUE')}"


@pytest.mark.parametrize("lengths", [(1020, 520), (520, 1020)])
def test_the_longest_sample_of_all_slices_counts(lengths: tuple[int, int]) -> None:
    stages = [
        stage(name, ["failed"], reason=f"`slurm-jobs resume RUN --set {SETTING}={length}`")
        for name, length in zip("ab", lengths, strict=True)
    ]
    assert lines_of(*stages)[-1] == f"next: {resume('--set', f'{SETTING}=1020')}"


def test_one_resume_has_the_settings_of_all_stages_that_failed() -> None:
    settings = [f"stages.{name}.config.max_tokens=9" for name in "ab"]
    stages = [
        stage(name, ["failed"], reason=f"too long: `slurm-jobs resume RUN --set {setting}`")
        for name, setting in zip("ab", settings, strict=True)
    ]
    stages.append(stage("c", ["failed"], reason=f"{REFUSED}batch_size 7 is not a multiple of 2"))
    sets = [word for setting in settings for word in ("--set", setting)]
    assert lines_of(*stages)[-1] == f"next: {resume(*sets, '--update-spec')}"


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
    ours = {"state": "CANCELLED", "reason": "cancelled"}
    stages = (stage("a", ["cancelled"] * 3, **ours), stage("b", ["cancelled"], **ours))
    line = "cancelled by `slurm-jobs cancel`: a slices 0-2, b"
    assert lines_of(*stages) == [line, f"next: {resume()}"]


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
        "a slice 0,2-3 held (JobHeldUser): `scontrol release 7_[0,2-3]` lets it start"
    )


def test_a_job_that_waits_for_an_administrator_is_named() -> None:
    blocked = stage("a", ["waiting"], wait="blocked", reason="PartitionDown: its partition is down")
    (line,) = lines_of(blocked)
    assert line == (
        "a cannot start (PartitionDown: its partition is down) until an administrator changes "
        "that: job 7"
    )

"""The local scheduler: the plan's meaning on this machine, driven by the command alone."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.driver import (
    COMMAND,
    Driver,
    kill,
    processes_naming,
    rank_pid,
    runner_pid,
    stage_of,
    wait_for,
    words_of,
)

CHAIN = """
name: chain
cluster: local
stages:
  first:
    run: user_stages:work
    array: {num_slices: 4, max_running: 2}
    config: {CONFIG}
  second: {run: "user_stages:work", after: first}
  always: {run: "user_stages:work", after: {second: afterany}}
"""


def _chain(local: Driver, config: str = "") -> str:
    local.write("spec.yaml", CHAIN.replace("CONFIG", config))
    return "spec.yaml"


def _intervals(run_dir: Path, stage: str, num_slices: int) -> list[tuple[float, float]]:
    spans = []
    for index in range(num_slices):
        words = (run_dir / "data" / stage / f"log-{index}").read_text().split()
        spans.append((float(words[words.index("begins") + 1]), float(words[-1])))
    return spans


def test_run_completes_all_stages_and_its_folder_is_private(local: Driver) -> None:
    done = local.run("run", _chain(local))
    run_dir = next((local.folder / "runs").iterdir())
    assert "Completed" in done.stdout
    assert words_of(local.status(run_dir)) == dict.fromkeys(
        ["first", "second", "always"], "completed"
    )
    for path in [run_dir, *run_dir.rglob("*")]:
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


def test_a_task_over_its_memory_says_so_and_resume_gives_it_more(local: Driver) -> None:
    local.write(
        "hog.py",
        "import time\n\ndef run(config, context):\n"
        "    held = bytearray(b'x') * 400_000_000\n    time.sleep(2)\n",
    )
    run_dir = local.submit_stages(
        "  eat: {run: 'hog:run', resources: {mem_gb: 0.2}, on_resume: {raise_mem_gb: 5}}\n"
    )
    local.wait(run_dir)
    said = local.run("status", str(run_dir), check=1).stdout
    assert "out of memory: its processes held 0." in said
    assert "mem_gb allows 0.2; raise resources.mem_gb" in said
    local.run("resume", str(run_dir))
    assert words_of(local.wait(run_dir)) == {"eat": "completed"}


@pytest.mark.slow
def test_max_running_bounds_how_many_array_tasks_run_at_once(local: Driver) -> None:
    run_dir = local.submit(_chain(local, "sleep_s: 0.5"))
    local.wait(run_dir)
    spans = _intervals(run_dir, "first", 4)
    for begin, _ in spans:
        assert sum(b <= begin < e for b, e in spans) <= 2


def test_failed_slice_is_named_and_resume_runs_it_and_nothing_else(local: Driver) -> None:
    run_dir = local.submit(_chain(local, 'fail: {"2": 1}'))
    status = local.wait(run_dir)
    assert words_of(status) == {"first": "failed", "second": "stranded", "always": "completed"}
    first = stage_of(status, "first")
    assert first["slices_by_status"] == {"completed": "0-1,3", "failed": "2"}
    assert "slice 2 fails on purpose" in first["slices"][2]["reason"]
    assert local.run("status", str(run_dir), check=1).stdout.count("first slice 2 failed") == 1

    resumed = local.json("resume", str(run_dir))
    assert [(job["stage"], job["slices"]) for job in resumed["jobs"]] == [
        ("first", "2"),
        ("second", "0"),
        ("always", "0"),
    ]
    assert local.wait(run_dir)["status"] == "completed"
    for index in (0, 1, 3):
        assert (run_dir / "data" / "first" / f"log-{index}").read_text().count("begins") == 1

    again = local.json("resume", str(run_dir))
    assert again["jobs"] == []


def test_retries_start_a_failing_task_again_in_place(local: Driver) -> None:
    text = CHAIN.replace("CONFIG", 'fail: {"1": 2}').replace(
        "max_running: 2}", "max_running: 2}\n    retries: 2"
    )
    run_dir = local.submit_text(text)
    status = local.wait(run_dir)
    assert status["status"] == "completed"
    assert stage_of(status, "first")["slices"][1]["attempt"] == 3
    logs = sorted(path.name for path in (run_dir / "logs" / "first").glob("s00001.*"))
    assert logs == [f"s00001.a000{n}.rank-00000.log" for n in (1, 2, 3)]


@pytest.mark.slow
def test_afterany_runs_after_a_failure_and_afternotok_only_then(local: Driver) -> None:
    status = local.wait(
        local.submit_stages(
            """\
  fails: {run: "user_stages:work", config: {fail: {"0": 9}}}
  works: {run: "user_stages:work"}
  any: {run: "user_stages:work", after: {fails: afterany}}
  mend: {run: "user_stages:work", after: {fails: afternotok}}
  idle: {run: "user_stages:work", after: {works: afternotok}}
  last: {run: "user_stages:work", after: {works: afterany, idle: afterany}}
"""
        )
    )
    assert words_of(status) == {
        "fails": "failed",
        "works": "completed",
        "any": "completed",
        "mend": "completed",
        "idle": "stranded",
        "last": "completed",
    }
    assert stage_of(status, "idle")["reason"] == "not needed: `works` completed"


@pytest.mark.slow
def test_a_stage_that_needs_long_to_save_is_asked_to_stop_early_enough(
    local: Driver,
) -> None:
    """Its limit is 12 s and its lead 1 s; it needs 2 s, and is asked 3 s before the end."""
    local.write(
        "slow_saver.py",
        """
import time
from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.base.processes.stop_requests import note_stop_time, stop_requested

def run(config, context):
    if context.attempt > 1:
        return {}
    note_stop_time(context.task_dir, 2.0)
    while not stop_requested():
        time.sleep(0.02)
    left_s = context.deadline_unix_s - time.time()
    (context.output_dir / "left-s").write_text(str(left_s))
    time.sleep(2)
    raise StageStoppedError("saved")
""",
    )
    run_dir = local.submit_stages(
        "  a: {run: 'slow_saver:run', resources: {timeout_min: 0.2, signal_lead_s: 1}}\n"
    )
    assert local.wait(run_dir)["status"] == "completed"
    assert 2.0 < float((run_dir / "data/a/left-s").read_text()) < 4.5
    outcomes = sorted(path.name.split(".")[3] for path in (run_dir / "completions/a").iterdir())
    assert outcomes == ["completed", "stopped"]


def test_time_limit_ends_a_task_with_the_state_timeout(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    run: user_stages:work
    resources: {timeout_min: 0.15, signal_lead_s: 0}     # a busy machine starts the rank in seconds
    config: {hang: [0]}
"""
    )
    status = local.wait(run_dir)
    assert stage_of(status, "a")["slices"][0]["state"] == "TIMEOUT"
    assert status["status"] == "failed"
    shown = local.run("status", str(run_dir), check=1).stdout
    reason = "a failed (local: TIMEOUT): reached its time limit of 0.15 min (resources.timeout_min)"
    (line,) = [line for line in shown.splitlines() if line.startswith(reason)]
    assert "; 2 s after SIGTERM rank 0" in line
    assert shown.endswith("--set stages.a.resources.timeout_min=1\n")


def test_stop_signal_before_the_limit_saves_requeues_and_goes_on(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    run: user_stages:stops_once
    resources: {timeout_min: 0.2, signal_lead_s: 2}     # told to stop after 10 s
"""
    )
    assert local.wait(run_dir)["status"] == "completed"
    outcomes = sorted(path.name for path in (run_dir / "completions" / "a").iterdir())
    assert [name.split(".")[1::2] for name in outcomes] == [
        ["a0001", "stopped"],
        ["a0002", "completed"],
    ]


def test_two_ranks_see_each_other_and_one_killed_rank_is_named(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    run: user_stages:work
    resources: {tasks_per_node: 2}
    config: {hang: [0]}
"""
    )
    pid = wait_for(lambda: rank_pid(run_dir, "a", "s00000.a0001", 1), "rank 1")
    wait_for((run_dir / "tasks/a/s00000.a0001/hangs-1").exists, "rank 1 at work")
    kill(pid)
    status = local.wait(run_dir)
    assert "rank 1 on local0 was killed by SIGKILL" in stage_of(status, "a")["slices"][0]["reason"]
    wait_for(lambda: not processes_naming(str(run_dir)), "the runner's end")


def test_resume_runs_the_slice_of_a_killed_supervisor_again(local: Driver) -> None:
    run_dir = local.submit(_chain(local, "hang: [1]"))
    wait_for((run_dir / "tasks/first/s00001.a0001/hangs-0").exists, "slice 1 at work")
    record = json.loads((run_dir / "attempts/first/s00001.a0001.json").read_text())
    kill(record["pid"])
    status = local.wait(run_dir)
    assert stage_of(status, "first")["slices_by_status"]["failed"] == "1"
    local.run("resume", str(run_dir))
    assert local.wait(run_dir)["status"] == "completed"
    wait_for(lambda: not processes_naming(str(run_dir)), "the runner's end")


def test_a_task_that_cannot_be_started_fails_alone_with_the_reason(
    local: Driver,
) -> None:
    wait = "touch NAME; until [ -e go-NAME ]; do sleep 0.05; done"
    local.write(
        "spec/spec.yaml",
        "name: gone\ncluster: local\nruns_dir: ../runs\nstages:\n"
        f"  p: {{shell: '{wait.replace('NAME', 'p')}'}}\n"
        "  c: {shell: 'true', after: p}\n"
        f"  q: {{shell: '{wait.replace('NAME', 'q')}'}}\n",
    )
    run_dir = local.submit("spec/spec.yaml")
    folder, away = local.folder / "spec", local.folder / "away"
    for name in ("p", "q"):
        wait_for((folder / name).exists, f"stage {name} at work")
    folder.rename(away)
    (away / "go-p").touch()

    def c_failed() -> Any:
        status = local.status(run_dir)
        return status if words_of(status)["c"] == "failed" else None

    status = wait_for(c_failed, "the failure of c")
    assert words_of(status) == {"p": "completed", "c": "failed", "q": "running"}
    reason = f"it could not be started: {folder}: No such file or directory; fix that, then"
    assert reason in local.run("status", str(run_dir), check=None).stdout
    assert reason in local.run("logs", str(run_dir), "c").stdout
    (away / "go-q").touch()
    assert words_of(local.wait(run_dir)) == {"p": "completed", "c": "failed", "q": "completed"}
    away.rename(folder)
    assert [job["stage"] for job in local.json("resume", str(run_dir))["jobs"]] == ["c"]
    assert local.wait(run_dir)["status"] == "completed"


def test_cancel_ends_everything_and_leaves_no_process(local: Driver) -> None:
    run_dir = local.submit(_chain(local, "hang: [0, 1]"))
    wait_for((run_dir / "tasks/first/s00001.a0001/hangs-0").exists, "slice 1 at work")
    assert "add --yes" in local.run("cancel", str(run_dir), check=2).stderr
    local.run("cancel", str(run_dir), "--yes")
    status = local.wait(run_dir)
    assert set(words_of(status).values()) == {"cancelled"}
    wait_for(lambda: not processes_naming(str(run_dir)), "the end of the tasks")
    local.run("resume", str(run_dir))
    assert local.wait(run_dir)["status"] == "completed"


@pytest.mark.slow
def test_users_package_called_pipeline_does_not_break_ours_nor_ours_theirs(local: Driver) -> None:
    local.write("pipeline/__init__.py", "raise RuntimeError('the wrong pipeline')")
    for name in ("tokenizer", "preprocessor_config", "processor_config", "chat_template"):
        local.write(f"pipeline/{name}.json", "{}")
    local.write("rows.csv", "image_path,text\na.png,words\n")
    local.write("a.png", "GIF89a")
    local.write("demo.yaml", _small_preprocess())
    status = local.wait(local.submit("demo.yaml"))
    reason = stage_of(status, "preprocess")["slices"][0]["reason"]
    assert "the wrong pipeline" not in reason
    assert "pipeline: no tokenizer can be loaded from it (" in reason  # ours was reached

    local.write("pipeline/__init__.py", "")
    local.write(
        "own.yaml",
        "name: own\ncluster: local\ncode: [pipeline]\nstages:\n"
        '  a: {run: "user_stages:whose_pipeline"}\n',
    )
    run_dir = local.submit("own.yaml")
    assert local.wait(run_dir)["status"] == "completed"
    assert "/user/pipeline/" in (run_dir / "data/a/file").read_text()


def _small_preprocess() -> str:
    return """
name: bad
cluster: local
stages:
  preprocess:
    run: preprocess
    config: {manifest: rows.csv, processor: ./pipeline}
"""


def test_edit_after_submit_does_not_change_a_waiting_job(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a: {run: "user_stages:work", config: {hang: [0]}}
  b: {run: "user_stages:work", after: {a: afterany}}
"""
    )
    pid = wait_for(lambda: rank_pid(run_dir, "a", "s00000.a0001", 0), "stage a")
    wait_for((run_dir / "tasks/a/s00000.a0001/hangs-0").exists, "stage a at work")
    local.write("user_stages.py", "raise RuntimeError('edited')")
    kill(pid)
    assert words_of(local.wait(run_dir))["b"] == "completed"


@pytest.mark.slow
def test_stages_keep_the_order_of_the_file_after_a_resume(local: Driver) -> None:
    run_dir = local.submit_stages(
        "  c: {shell: 'true'}\n  a: {shell: 'test -e mended'}\n  b: {shell: 'true', after: a}\n"
    )
    assert list(words_of(local.wait(run_dir))) == ["c", "a", "b"]
    local.write("mended", "")
    for options in ([], ["--set", "stages.b.resources.mem_gb=1"]):
        local.run("resume", str(run_dir), *options)
        assert list(words_of(local.wait(run_dir))) == ["c", "a", "b"]
    assert list(json.loads((run_dir / "spec/resolved.json").read_text())["stages"]) == [*"cab"]


@pytest.mark.slow
def test_superseded_job_exits_without_working(local: Driver) -> None:
    run_dir = local.submit(_chain(local))
    local.wait(run_dir)
    ledger = run_dir / "ledger"
    entries = [json.loads(path.read_text()) for path in sorted(ledger.glob("*.json"))]
    intent = next(e for e in entries if e["kind"] == "intent" and e["stage"] == "second")
    token = intent["token"]
    begins = (run_dir / "data/second/log-0").read_text().count("begins")
    newer = ledger / f"{len(entries) + 1:06d}.json"
    newer.write_text(json.dumps({**intent, "token": "ffffffff"}))
    done = subprocess.run(
        ["bash", str(run_dir / "jobs" / token / "batch.sh")],
        env={
            **os.environ,
            "SLURM_JOBS_LOCAL_JOB_ID": "2",
            "SLURM_JOBS_LOCAL_TASK_ID": "2",
            "SLURM_JOBS_LOCAL_END_UNIX_S": "1e12",
            "SLURM_JOBS_LOCAL_RESTART_COUNT": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 79}
    assert (run_dir / "data/second/log-0").read_text().count("begins") == begins


def test_of_two_concurrent_resumes_one_submits(local: Driver) -> None:
    run_dir = local.submit(_chain(local, 'fail: {"2": 1}'))
    local.wait(run_dir)
    both = [
        subprocess.Popen(
            [*COMMAND, "resume", str(run_dir), "--json"],
            cwd=local.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    results: list[Any] = [json.loads(text) for text in outputs]
    submitted = [r for r in results if r.get("jobs")]
    assert len(submitted) == 1
    assert local.wait(run_dir)["status"] == "completed"
    assert (run_dir / "data/first/log-2").read_text().count("begins") == 2


def test_interrupt_of_run_ends_the_watching_and_not_the_run(local: Driver) -> None:
    local.write(
        "spec.yaml",
        "name: held\ncluster: local\nstages:\n"
        "  first: {shell: 'until [ -e go ]; do sleep 0.05; done'}\n",
    )
    watcher = subprocess.Popen(
        [*COMMAND, "run", "spec.yaml"],
        cwd=local.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    assert any("] first: " in line for line in watcher.stdout)  # it watches
    watcher.send_signal(signal.SIGINT)
    _, errors = watcher.communicate(timeout=120)
    assert watcher.returncode == 130
    assert "the run continues" in errors
    local.write("go", "")
    assert local.wait(next((local.folder / "runs").iterdir()))["status"] == "completed"


@pytest.mark.slow
def test_pending_tasks_without_a_runner_are_stranded_and_resume_starts_one(local: Driver) -> None:
    run_dir = local.submit(_chain(local, "hang: [0, 1]"))
    wait_for((run_dir / "tasks/first/s00001.a0001/hangs-0").exists, "slice 1 at work")
    kill(runner_pid(run_dir))
    wait_for(lambda: not processes_naming(str(run_dir)), "the end of the tasks")
    status = local.status(run_dir)
    assert stage_of(status, "first")["counts"] == {"failed": 2, "stranded": 2}
    local.run("resume", str(run_dir))
    assert local.wait(run_dir)["status"] == "completed"


@pytest.mark.slow
def test_resume_with_more_time_keeps_finished_work(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a: {run: "user_stages:work"}
  b:
    shell: "until [ -e longer ]; do sleep 0.05; done"
    after: a
    resources: {timeout_min: 0.03}
"""
    )
    assert words_of(local.wait(run_dir)) == {"a": "completed", "b": "failed"}
    longer = ["resume", str(run_dir), "--set", "stages.b.resources.timeout_min=1"]
    dry = local.json(*longer, "--dry-run")
    assert [job["stage"] for job in dry["jobs"]] == ["b"]
    assert words_of(local.status(run_dir))["b"] == "failed"
    local.write("longer", "")
    local.run(*longer)
    assert local.wait(run_dir)["status"] == "completed"
    assert (run_dir / "data/a/log-0").read_text().count("begins") == 1
    fixed = local.run("resume", str(run_dir), "--set", "name=other", check=2)
    assert "a run keeps its `name`" in fixed.stderr


@pytest.mark.slow
def test_resume_with_another_config_runs_that_stage_and_what_comes_after(local: Driver) -> None:
    run_dir = local.submit(_chain(local))
    local.wait(run_dir)
    words = ["resume", str(run_dir), "--set", "stages.second.config.text=other"]
    resumed = local.json(*words)
    assert [job["stage"] for job in resumed["jobs"]] == ["second", "always"]
    local.wait(run_dir)
    assert (run_dir / "data/second/out-0").read_text() == "other"
    assert local.json("resume", str(run_dir))["jobs"] == []


def test_resume_uses_the_code_of_the_run_without_update_code(local: Driver) -> None:
    run_dir = local.submit(_chain(local, 'fail: {"2": 9}'))
    local.wait(run_dir)
    code = (local.folder / "user_stages.py").read_text()
    local.write("user_stages.py", code.replace("raise ValueError", "print"))
    done = local.run("resume", str(run_dir))
    assert "--update-code" in done.stdout
    assert words_of(local.wait(run_dir))["first"] == "failed"
    again = local.json("resume", str(run_dir), "--update-code")
    assert (again["jobs"][0]["stage"], again["jobs"][0]["slices"]) == ("first", "0-3")
    assert local.wait(run_dir)["status"] == "completed"


@pytest.mark.slow
def test_resume_right_after_cancel_waits_for_the_old_tasks_to_end(local: Driver) -> None:
    run_dir = local.submit(_chain(local, "hang: [0, 1], hang_attempts: 1"))
    wait_for((run_dir / "tasks/first/s00001.a0001/hangs-0").exists, "slice 1 at work")
    local.run("cancel", str(run_dir), "--yes")
    resumed = local.json("resume", str(run_dir))
    assert ("first", "0-3") in [(job["stage"], job["slices"]) for job in resumed["jobs"]]
    assert local.wait(run_dir)["status"] == "completed"
    for index in (0, 1):
        first, second = (
            json.loads((run_dir / f"attempts/first/s0000{index}.a000{n}.json").read_text())
            for n in (1, 2)
        )
        old_end = json.loads((run_dir / f"local/states/1_{index}.json").read_text())["end_unix_s"]
        assert first["started_unix_s"] < old_end <= second["started_unix_s"]


def test_a_missing_log_is_an_error_and_the_supervisors_log_can_be_read(
    local: Driver,
) -> None:
    run_dir = local.submit(_chain(local))
    local.wait(run_dir)
    said = local.run("logs", str(run_dir), "first", "--slice", "7", check=2).stderr
    assert "`first` has the slices 0 to 3" in said
    text = local.run("logs", str(run_dir), "first", "--slice", "1", "--supervisor").stdout
    assert "first slice 1 as job 1_1" in text
    local.run("logs", str(run_dir), "first", "--follow")


def test_lost_output_of_a_completed_slice_is_made_again(local: Driver) -> None:
    run_dir = local.submit(_chain(local, "name_outputs: true"))
    local.wait(run_dir)
    (run_dir / "data/first/out-2").unlink()
    done = local.run("resume", str(run_dir))
    assert "the output of first, slice 2, is missing or cut short" in done.stdout
    assert "runs again: first, slice 2" in done.stdout
    assert local.wait(run_dir)["status"] == "completed"
    assert (run_dir / "data/first/out-2").read_text() == "done"
    assert (run_dir / "data/first/log-1").read_text().count("begins") == 1

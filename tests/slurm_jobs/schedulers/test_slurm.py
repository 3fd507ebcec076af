"""squeue and sacct are programs of the test's own: see `fake_slurm`."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.schedulers.agreement import AGREE_S
from slurm_jobs.schedulers.controller import MOST_SINGLE_REQUESTS
from slurm_jobs.schedulers.protocol import Question
from slurm_jobs.schedulers.slurm import MAX_IDS_NAMED, accounting, find, query
from tests.slurm_jobs.schedulers.fake_slurm import (
    ACCOUNTS_OFF,
    DATABASE_DOWN,
    QUEUE_HEADER,
    FakeSlurm,
    account_row,
    key,
    make_fake_slurm,
    question,
    queue_row,
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


def states(job_ids: list[str]) -> dict[str, tuple[str, str]]:
    answer = query(question(*job_ids))
    return {key.job_id: (task.source, task.state) for key, task in answer.tasks.items()}


def test_one_call_of_each_asks_for_any_number_of_jobs(slurm: FakeSlurm) -> None:
    """submitit#1759: thousands of tasks polled one by one trip a site's limit."""
    ids = [str(number) for number in range(1, MAX_IDS_NAMED + 2)]
    slurm.says("squeue", queue_row("1", "RUNNING") + queue_row("999999", "RUNNING"))
    slurm.says("sacct", account_row("2", "FAILED") + account_row("999998", "FAILED"))
    assert states(ids) == {"1": ("squeue", "RUNNING"), "2": ("sacct", "FAILED")}
    assert len(slurm.calls("squeue")) == len(slurm.calls("sacct")) == 1


def test_a_job_of_the_same_id_and_another_name_is_not_ours(slurm: FakeSlurm) -> None:
    """desispec#2049: Slurm gives ids again, and every cluster counts for itself."""
    slurm.says("squeue", queue_row("1", "RUNNING", name="my-other-work"))
    slurm.says("sacct", account_row("2", "COMPLETED", JobName="a-strangers"))
    assert states(["1", "2"]) == {}
    assert accounting(question("2")).starts == ()
    slurm.says("sacct", account_row("1", "TIMEOUT"))  # the database has not heard of the new one
    assert states(["1", "2"]) == {"1": ("sacct", "TIMEOUT")}


def test_a_renamed_job_is_ours_whatever_sacct_calls_it(slurm: FakeSlurm) -> None:
    script = "/home/ada/s-1/jobs/t1/submission_file_9.sh"
    slurm.says("squeue", queue_row("1", "RUNNING", name="mine", command=script))
    slurm.says("sacct", account_row("1", "RUNNING", JobName="mine"))
    answer = query(question("1"))
    assert [(t.job_name, t.source) for t in answer.tasks.values()] == [("words.a.t1", "squeue")]
    assert answer.lagging == {}


def test_two_jobs_with_one_id_on_two_clusters_are_distinguished(slurm: FakeSlurm) -> None:
    slurm.says("squeue", queue_row("7", "RUNNING", name="words.a.here"))
    jobs = {"words.a.there": "7", "words.a.here": "7"}
    (task,) = query(Question(jobs=jobs, since_unix_s=0)).tasks.values()
    assert task.job_name == "words.a.here"


def test_two_jobs_of_one_run_with_one_id_are_known_by_their_names(slurm: FakeSlurm) -> None:
    """The controller has lost its state between them."""
    slurm.says("squeue", queue_row("7", "RUNNING", name="words.b.new"))
    rows = account_row("7", "CANCELLED", JobName="words.a.old", Submit="100")
    slurm.says("sacct", rows + account_row("7", "PENDING", JobName="words.b.new", Submit="200"))
    jobs = {"words.a.old": "7", "words.b.new": "7"}
    tasks = query(Question(jobs=jobs, since_unix_s=0)).tasks.values()
    assert {task.job_name: task.state for task in tasks} == {
        "words.a.old": "CANCELLED",
        "words.b.new": "RUNNING",
    }
    assert "--duplicates" in slurm.calls("sacct")[0].split()


def test_of_several_starts_of_a_job_the_newest_counts(slurm: FakeSlurm) -> None:
    earlier = account_row("7", "NODE_FAIL", Submit="100")
    newest = account_row("7", "TIMEOUT", Submit="200")
    for rows in (earlier + newest, newest + earlier):
        slurm.says("sacct", rows)
        assert states(["7"]) == {"7": ("sacct", "TIMEOUT")}


def test_of_what_lives_squeue_is_believed_and_of_what_has_ended_sacct(slurm: FakeSlurm) -> None:
    slurm.says(
        "squeue",
        queue_row("1", "PENDING") + queue_row("2", "FAILED") + queue_row("3", "NODE_FAIL"),
    )
    slurm.says(
        "sacct",
        account_row("1", "NODE_FAIL")  # requeued since
        + account_row("2", "OUT_OF_MEMORY")
        + account_row("3", "RUNNING")  # it has not heard of the end
        + account_row("4", "TIMEOUT"),
    )
    assert states(["1", "2", "3", "4"]) == {
        "1": ("squeue", "PENDING"),
        "2": ("sacct", "OUT_OF_MEMORY"),
        "3": ("squeue", "NODE_FAIL"),
        "4": ("sacct", "TIMEOUT"),
    }


def test_a_job_that_only_sacct_takes_for_alive_is_not_alive(slurm: FakeSlurm) -> None:
    """nextflow#5298: a task of a dead node is shown as running for ever."""
    slurm.says("squeue", queue_row("1_0", "RUNNING"))
    slurm.says("sacct", account_row("1_0", "RUNNING") + account_row("1_1", "RUNNING"))
    answer = query(question("1"))
    assert set(answer.tasks) == {key("1_0")}
    assert answer.lagging == {key("1_1"): "RUNNING"}


def test_while_squeue_is_silent_sacct_is_taken_at_its_word(slurm: FakeSlurm) -> None:
    slurm.says("squeue", "", errors="slurm_load_jobs error: Unable to contact", exit_code=1)
    slurm.says("sacct", account_row("1", "RUNNING"))
    answer = query(question("1"))
    assert answer.tasks[key("1")].state == "RUNNING"
    assert not answer.lagging
    assert not answer.knows_the_living
    assert [problem.source for problem in answer.problems] == ["squeue"]


def test_a_database_that_is_down_is_a_problem_and_squeue_alone_serves(slurm: FakeSlurm) -> None:
    """snakemake-executor-plugin-slurm#331, #207: it kills runs that go on for days."""
    slurm.says("squeue", queue_row("1", "RUNNING"))
    slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)
    answer = query(question("1", "2"))
    assert answer.knows_the_living
    assert set(answer.tasks) == {key("1")}
    assert answer.problems[0].source == "sacct"
    assert "Connection refused" in answer.problems[0].reason


def test_sacct_is_queried_from_a_day_before_the_submission(
    slurm: FakeSlurm,
) -> None:
    """snakemake#1227: sacct's own window begins at midnight."""
    submitted_unix_s = 1_763_651_000.0
    query(question("1", since_unix_s=submitted_unix_s))
    (call,) = slurm.calls("sacct")
    begin = call.split()[call.split().index("-S") + 1]
    begin_unix_s = time.mktime(time.strptime(begin, "%Y-%m-%dT%H:%M:%S"))
    assert begin_unix_s == submitted_unix_s - 86_400  # the controller's clock may be behind


def test_accounting_that_is_switched_off_is_a_fact_and_no_problem(slurm: FakeSlurm) -> None:
    slurm.says("squeue", queue_row("1", "COMPLETED"))
    slurm.says("sacct", "", errors=ACCOUNTS_OFF, exit_code=1)
    answer = query(question("1"))
    assert (answer.problems, len(answer.notes)) == ((), 1)
    assert answer.tasks[key("1")].source == "squeue"
    assert "keeps no accounts" in accounting(question("1")).problems[0].reason


def test_a_lost_job_is_found_in_the_queue_first_and_then_in_the_accounts(slurm: FakeSlurm) -> None:
    slurm.says("squeue", "12|PENDING||words.a.t1\n")
    slurm.says("sacct", "13_4|COMPLETED|cpu1|words.b.t2\n")
    assert find(["words.a.t1"]) == {"words.a.t1": "12"}
    assert slurm.calls("sacct") == []
    assert find(["words.a.t1", "words.b.t2"]) == {"words.a.t1": "12", "words.b.t2": "13"}


def test_a_refused_job_that_slurm_recorded_is_not_taken_for_a_real_one(
    slurm: FakeSlurm,
) -> None:
    """An array of BadConstraints, as 22.05 shows it; the others were taken, and have ended."""
    slurm.says(
        "squeue",
        "12|FAILED||words.a.t1\n13|FAILED|cpu1|words.b.t2\n14|CANCELLED||words.c.t3\n",
    )
    slurm.says("sacct", "12_[0-3]|FAILED|None assigned|words.a.t1\n")
    names = ["words.a.t1", "words.b.t2", "words.c.t3"]
    assert find(names) == {"words.b.t2": "13", "words.c.t3": "14"}


@pytest.mark.parametrize("errors", [ACCOUNTS_OFF, DATABASE_DOWN])
def test_lost_jobs_are_looked_for_without_accounts(slurm: FakeSlurm, errors: str) -> None:
    slurm.says("squeue", "12|PENDING||words.a.t1\n")
    slurm.says("sacct", "", errors=errors, exit_code=1)
    assert find(["words.a.t1", "words.b.t2"]) == {"words.a.t1": "12"}


def test_without_squeue_it_is_unknown_whether_a_lost_job_lives(slurm: FakeSlurm) -> None:
    slurm.says("squeue", "", exit_code=1)
    slurm.says("sacct", "13|COMPLETED|cpu1|words.a.t1\n")
    with pytest.raises(SchedulerError, match="squeue"):
        find(["words.a.t1"])


def test_a_program_that_is_not_there_is_named(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    answer = query(question("1"))
    assert not answer.knows_the_living
    assert {"`sacct`" in p.reason or "`squeue`" in p.reason for p in answer.problems} == {True}
    assert len(answer.problems) == 2


FOREIGN_TABLE = "  JOBID PARTITION NAME  USER ST TIME NODES NODELIST(REASON)\n"
FOREIGN_JOB = "     7 debug     words ada  R  0:10 1     cpu1\n"


@pytest.mark.parametrize(
    "text",
    [
        "\ufffd|a|b\n",
        "JOBID|STATE\n7|RUNNING\n",
        FOREIGN_TABLE + FOREIGN_JOB,
        FOREIGN_TABLE,
        FOREIGN_JOB,
        "Welcome to the cluster\n",
        "slurm_load_jobs error: Unable to contact slurm controller\n",
        "[]\n",
        "\n",
        "",
        QUEUE_HEADER + FOREIGN_JOB,
        QUEUE_HEADER + queue_row("8", "RUNNING") + "7|7|RUNNING|None|17\n",
        queue_row("8", "RUNNING") + FOREIGN_JOB,
    ],
)
def test_an_answer_that_is_not_in_the_format_says_nothing_of_any_job(
    slurm: FakeSlurm, text: str
) -> None:
    slurm.says("squeue", text, header=False)
    answer = query(question("7"))
    assert not answer.knows_the_living
    (problem,) = answer.problems
    assert problem.source == "squeue"
    assert problem.reason.startswith("`squeue` did not print the 9 fields")
    with pytest.raises(SchedulerError, match="`squeue` did not print the 4 fields"):
        find(["r.a.1"])


@pytest.mark.parametrize("text", ["", "Welcome\n", "7 words cpu COMPLETED 0:0\n", "7|COMPLETED\n"])
def test_accounts_in_another_format_are_a_problem(slurm: FakeSlurm, text: str) -> None:
    slurm.says("sacct", text, header=False)
    (problem,) = query(question("7")).problems
    assert problem.source == "sacct"
    assert problem.reason.startswith("`sacct` did not print the 16 fields")


def test_a_table_without_jobs_says_that_none_lives(slurm: FakeSlurm) -> None:
    answer = query(question("7"))
    assert (answer.knows_the_living, answer.problems, answer.tasks) == (True, (), {})
    assert find(["words.a.t1"]) == {}


def test_lines_of_a_sites_own_around_the_rows_are_left_out(slurm: FakeSlurm) -> None:
    banner = "Welcome | to the cluster\n12 nodes are down today\nCLUSTER: a\n"
    slurm.says(
        "squeue", banner + QUEUE_HEADER + queue_row("1", "RUNNING") + "\nGood bye\n", header=False
    )
    assert states(["1"]) == {"1": ("squeue", "RUNNING")}
    slurm.says("squeue", banner + queue_row("1", "RUNNING"), header=False)
    assert states(["1"]) == {"1": ("squeue", "RUNNING")}


def test_a_name_with_a_bar_does_not_hide_its_job_from_the_accounts(slurm: FakeSlurm) -> None:
    jobs = {"a|b": "7"}
    slurm.says("sacct", account_row("7", "TIMEOUT", JobName="a|b", Reason="None"))
    (task,) = query(Question(jobs=jobs, since_unix_s=0)).tasks.values()
    assert (task.job_name, task.state, task.reason) == ("a|b", "TIMEOUT", "")


def basic_programs(folder: Path) -> Path:
    """A folder of the programs that the fake squeue and sacct call."""
    programs = folder / "basic"
    programs.mkdir()
    for name in ("bash", "cat"):
        (programs / name).symlink_to(f"/bin/{name}")
    return programs


def about(*job_ids: str, age_s: float, acts: bool = False) -> Question:
    """A question about open jobs that were submitted so long ago."""
    asked = question(*job_ids)
    since = dict.fromkeys(asked.jobs, time.time() - age_s)
    return Question(jobs=asked.jobs, since_unix_s=0.0, open_jobs=since, acts=acts)


def test_the_controller_is_asked_once_about_fresh_jobs_squeue_lacks(
    slurm: FakeSlurm,
) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING"))
    known = queue_row("2", "PENDING", "Dependency") + queue_row("3_[0-2]", "PENDING")
    slurm.controller_says(known + queue_row("4", "RUNNING", name="words.z.other"))
    tasks = query(about("1", "2", "3", "4", age_s=20)).tasks
    assert {key.job_id: (task.source, task.state) for key, task in tasks.items()} == {
        "1": ("squeue", "RUNNING"),
        "2": ("scontrol", "PENDING"),
        **{f"3_{index}": ("scontrol", "PENDING") for index in range(3)},
    }
    assert slurm.asked_of_controller() == ["2 3 4"]


def test_an_old_job_that_squeue_has_dropped_costs_no_request(slurm: FakeSlurm) -> None:
    slurm.says("sacct", account_row("2", "FAILED"))
    query(about("1", "2", age_s=AGREE_S))
    assert slurm.asked_of_controller() == []
    slurm.says("sacct", account_row("2", "RUNNING"))
    assert query(about("1", "2", age_s=AGREE_S)).lagging == {key("2"): "RUNNING"}
    assert slurm.asked_of_controller() == ["2"]


def test_a_command_that_acts_asks_about_every_open_job(slurm: FakeSlurm) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING") + queue_row("9", "RUNNING"))
    slurm.controller_says("")
    asked = about("1", "2", age_s=AGREE_S, acts=True)
    jobs = {**asked.jobs, **question("8", "9").jobs}
    found = query(replace(asked, jobs=jobs))
    assert slurm.asked_of_controller() == ["1 2 9"]
    assert found.tasks == {}  # squeue is behind


def test_a_silent_controller_leaves_open_whether_a_fresh_job_lives(slurm: FakeSlurm) -> None:
    slurm.controller_is_silent()
    found = query(about("1", age_s=20))
    assert found.doubts == {key("1"): "controller silent"}
    assert [problem.source for problem in found.problems] == ["scontrol"]
    assert query(about("1", age_s=AGREE_S)).doubts == {}
    assert query(about("1", age_s=AGREE_S, acts=True)).doubts == {key("1"): "controller silent"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("exit 0", id="nothing"),
        pytest.param("cat; exit 0", id="its-input"),
        pytest.param('echo "JobId=1 Cluster=c JobName=words.a.t1"', id="other-first-line"),
        pytest.param('printf "JobId=2 JobName=b\\n   JobState=RUNNING\\n"', id="another-job"),
        pytest.param('echo "scontrol: error: Socket timed out" >&2; exit 1', id="error"),
    ],
)
def test_an_answer_that_is_not_about_the_job_proves_no_end(slurm: FakeSlurm, answer: str) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING"))
    (slurm.folder / "scontrol").write_text(f"#!/bin/bash\n{answer}\n")
    found = query(about("1", age_s=AGREE_S, acts=True))
    assert found.doubts == {key("1"): "controller silent"}
    assert [problem.source for problem in found.problems] == ["scontrol"]


def test_noise_next_to_the_controllers_answer_is_ignored(slurm: FakeSlurm) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING"))
    program = slurm.folder / "scontrol"
    noise = 'echo "ERROR: ld.so: object x from LD_PRELOAD cannot be preloaded: ignored." >&2\n'
    program.write_text(program.read_text().replace("#!/bin/bash\n", f"#!/bin/bash\n{noise}"))
    found = query(about("1", "2", age_s=AGREE_S, acts=True))
    assert (found.doubts, found.problems) == ({}, ())
    assert [(task.job_id, task.source) for task in found.tasks.values()] == [("1", "scontrol")]


def test_many_jobs_are_one_request_to_the_controller(slurm: FakeSlurm) -> None:
    ids = [str(number) for number in range(1, MOST_SINGLE_REQUESTS + 2)]
    slurm.controller_says(queue_row("7", "RUNNING"))
    found = query(about(*ids, age_s=20))
    assert slurm.asked_of_controller() == ["all"]
    assert [task.job_id for task in found.tasks.values()] == ["7"]
    slurm.controller_says("")
    assert query(about(*ids, age_s=20)).doubts == {}


def test_without_scontrol_squeue_decides_about_all_but_fresh_jobs(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING"))
    (slurm.folder / "scontrol").unlink()
    monkeypatch.setenv("PATH", f"{slurm.folder}:{basic_programs(slurm.folder.parent)}")
    found = query(about("1", "2", age_s=20, acts=True))
    assert found.doubts == {key("2"): "controller silent"}
    assert query(about("1", "2", age_s=AGREE_S, acts=True)).doubts == {}
    assert "was not found" in found.problems[0].reason


def test_a_job_that_squeue_does_not_list_yet_is_found_by_its_name(slurm: FakeSlurm) -> None:
    slurm.controller_says(queue_row("12", "PENDING"))
    assert find(["words.a.t12", "words.a.t13"]) == {"words.a.t12": "12"}
    slurm.controller_is_silent()
    with pytest.raises(SchedulerError, match="scontrol"):
        find(["words.a.t13"])

"""`scontrol show job` as Slurm 22.05 prints it."""

from __future__ import annotations

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.schedulers.controller import entries, parse_jobs

SHOWN = """\
scontrol: show job 5
JobId=5 ArrayJobId=5 ArrayTaskId=2-3,7%2 ArrayTaskThrottle=2 JobName=r.a.1f2e
   UserId=ada(999) GroupId=ada(995) MCS_label=N/A
   JobState=PENDING Reason=JobArrayTaskLimit Dependency=(null)
   SubmitTime=1795934294 EligibleTime=Unknown
   StartTime=Unknown EndTime=Unknown Deadline=N/A
   ReqNodeList=cpu9 ExcNodeList=(null)
   NodeList=
   Command=/runs/a b/jobs/1f2e/submission.sh

JobId=8 ArrayJobId=5 ArrayTaskId=1 ArrayTaskThrottle=2 JobName=r.a.1f2e
   JobState=RUNNING Reason=None Dependency=(null)
   SubmitTime=1795934294 EligibleTime=1795934294
   StartTime=1795934299 EndTime=1795937894 Deadline=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=cpu1
   Command=/runs/a b/jobs/1f2e/submission.sh

scontrol: show job 99
scontrol: JobId=6 JobName=my own name
   JobState=COMPLETING Reason=NonZeroExitCode Dependency=(null)
   SubmitTime=1795934294 EligibleTime=1795934294
   NodeList=cpu[1-2]
   Command=/runs/a b/jobs/77aa/submission.sh --name JobState=FAILED

"""
JOBS = {"r.a.1f2e": "5", "r.b.77aa": "6"}


def test_jobs_and_elements_have_state_reason_times_and_nodes() -> None:
    tasks = {key.job_id: task for key, task in parse_jobs(SHOWN, JOBS).items()}
    assert set(tasks) == {"5_1", "5_2", "5_3", "5_7", "6"}
    assert (tasks["5_7"].state, tasks["5_7"].reason) == ("PENDING", "JobArrayTaskLimit")
    assert (tasks["5_7"].start_unix_s, tasks["5_7"].node_list) == (None, "")
    assert (tasks["5_1"].state, tasks["5_1"].reason) == ("RUNNING", "")
    assert (tasks["5_1"].start_unix_s, tasks["5_1"].node_list) == (1795934299, "cpu1")
    assert {task.source for task in tasks.values()} == {"scontrol"}


def test_a_renamed_job_is_known_by_the_folder_of_its_batch_script() -> None:
    tasks = {key.job_id: task for key, task in parse_jobs(SHOWN, JOBS).items()}
    assert (tasks["6"].job_name, tasks["6"].state) == ("r.b.77aa", "COMPLETING")


def test_a_job_of_another_name_that_has_the_id_now_is_not_ours() -> None:
    assert parse_jobs(SHOWN, {"r.b.77ab": "6", "r.a.1f2e": "6"}) == {}


def test_every_job_is_listed_with_its_name_to_find_one_by_that() -> None:
    assert [(job["job_id"], job["name"]) for job in entries(SHOWN)] == [
        ("5", "r.a.1f2e"),
        ("5", "r.a.1f2e"),
        ("6", "my own name"),
    ]


def test_a_shortened_list_of_elements_is_no_answer() -> None:
    with pytest.raises(SchedulerError, match="shortened"):
        parse_jobs(SHOWN.replace("2-3,7%2", "2-3,..."), JOBS)

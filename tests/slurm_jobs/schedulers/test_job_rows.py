"""Rows of squeue and sacct as they are read."""

from collections.abc import Mapping

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.schedulers.job_rows import (
    SACCT_FIELDS,
    is_refusal,
    parse_bytes,
    parse_sacct,
    parse_squeue,
)
from tests.slurm_jobs.cli.command import command

__all__ = ["command"]


# As Slurm 22.05 prints them with SLURM_TIME_FORMAT=%s.
SQUEUE = """\
12_3|12|RUNNING|None|1763651000|1763651010|cpu1|r.a.1|/r/a.sh
12_[4-6%2]|12|PENDING|JobArrayTaskLimit|1763651000|N/A||r.a.1|/r/a.sh
12_[7-9,11]|12|PENDING|Resources|1763651000|1763660000||r.a.1|/r/a.sh
13|13|PENDING|Dependency|1763651001|N/A||r.b.2|/r/a.sh
14|14|RUNNING|None|1763651001|1763651500|gpu[1-2]|r.c.3|/r/a.sh
99|99|RUNNING|None|1763651001|1763651500|cpu1|r.d.4|/r/a.sh
15|15|RUNNING|None|1763651001|1763651500|cpu1|my-other-work|/r/a.sh
16|16|RUNNING|None|1763651001|1763651500|cpu1|r.e.5|/r/a.sh
slurm_load_jobs error: Unexpected message received
"""


def queued(text: str, jobs: Mapping[str, str]) -> dict[str, TaskAccounting]:
    """Rows by id, where no two jobs have the same."""
    return {key.job_id: task for key, task in parse_squeue(text, jobs).items()}


def newest_by_id(text: str) -> dict[str, TaskAccounting]:
    return {task.job_id: task for task in parse_sacct(text)}


def test_squeue_gives_every_array_task_of_the_jobs_requested() -> None:
    tasks = queued(SQUEUE, {"r.a.1": "12", "r.b.2": "13", "r.c.3": "14"})
    assert set(tasks) == {"12_3", *(f"12_{i}" for i in (4, 5, 6, 7, 8, 9, 11)), "13", "14"}
    assert tasks["12_3"].state == "RUNNING"
    assert tasks["12_3"].reason == ""
    assert tasks["12_3"].start_unix_s == 1763651010
    assert tasks["12_4"].reason == "JobArrayTaskLimit"
    assert tasks["12_4"].start_unix_s is None
    assert tasks["12_11"].start_unix_s == 1763660000
    assert tasks["14"].node_list == "gpu[1-2]"
    assert {task.source for task in tasks.values()} == {"squeue"}


def test_a_job_counts_under_its_own_id_and_its_own_name_alone() -> None:
    """desispec#2049: an id that Slurm gave again, or that another cluster gave."""
    assert queued(SQUEUE, {"r.f.6": "15", "r.e.5": "17"}) == {}
    assert queued(SQUEUE, {"r.e.5": "16"})["16"].job_name == "r.e.5"


@pytest.mark.parametrize("name", ["mine", "a|b", ""])
def test_a_job_that_was_renamed_is_known_by_the_folder_of_its_batch_script(name: str) -> None:
    start = f"12_[0-1%2]|12|PENDING|Priority|1|N/A||{name}|"
    row = f"{start}/home/a|b c/s-1/jobs/1f2e/submission_file_9.sh\n"
    tasks = queued(row, {"r.a.1f2e": "12", "r.b.77aa": "12"})
    assert {task_id: task.job_name for task_id, task in tasks.items()} == {
        "12_0": "r.a.1f2e",
        "12_1": "r.a.1f2e",
    }


@pytest.mark.parametrize(
    ("job_id", "command"),
    [
        ("12", "/home/ada/s-1/jobs/77aa/submission_file_9.sh"),
        ("12", "/home/ada/1f2e/jobs.sh"),
        ("12", "/home/ada/1f2e/a.sh"),
        ("12", "(null)"),
        ("12", ""),
        ("13", "/home/ada/s-1/jobs/1f2e/submission_file_9.sh"),
    ],
)
def test_a_job_with_another_name_and_script_or_id_belongs_to_a_stranger(
    job_id: str, command: str
) -> None:
    row = f"{job_id}|{job_id}|PENDING|Priority|1|N/A||mine|{command}\n"
    assert parse_squeue(row, {"r.a.1f2e": "12", "": "12"}) == {}


def test_a_list_that_squeue_shortened_proves_nothing() -> None:
    row = "12_[0-3,5,7,...]|12|PENDING|Priority|1|N/A||r.a.1|/r/a.sh\n"
    assert parse_squeue(row, {"r.a.1": "12"}) == {}


def row(job_id: str, state: str, **values: str) -> str:
    known = {
        "JobID": job_id,
        "State": state,
        "ExitCode": "0:0",
        "Submit": "1763651000",
        "Eligible": "1763651000",
        "Start": "1763651010",
        "End": "1763651100",
        "NodeList": "cpu1",
        "AllocCPUS": "4",
        "ReqMem": "8G",
        "TotalCPU": "00:00:00",
        "TimelimitRaw": "60",
        "AllocTRES": "billing=4,cpu=4,mem=8G,node=1",
        "Reason": "None",
    } | values
    return "|".join(known.get(name, "") for name in SACCT_FIELDS)


def test_sacct_gives_state_codes_and_times() -> None:
    text = row("12_3", "FAILED", ExitCode="3:0", TotalCPU="1-02:03:04")
    task = newest_by_id(text)["12_3"]
    assert (task.state, task.exit_code, task.signal) == ("FAILED", 3, None)
    assert (task.submit_unix_s, task.start_unix_s) == (1763651000, 1763651010)
    assert task.num_cpus == 4
    assert task.time_limit_s == 3600
    assert task.cpu_time_s == 86400 + 2 * 3600 + 3 * 60 + 4
    assert task.requested_mem_bytes == 8 * 2**30


@pytest.mark.parametrize(
    ("asked", "tres", "gib"),
    [
        ("8G", "cpu=4,mem=8G,node=1", 8),  # 21.08 to 25.05: the whole job
        ("16G", "cpu=8,mem=16G,node=2", 8),
        ("8Gn", "cpu=4,mem=8G,node=1", 8),  # 20.11: a node
        ("8Gn", "cpu=8,mem=16G,node=2", 8),
        ("2Gc", "cpu=8,mem=16G,node=2", 4),  # 20.11: a core, of which four came on two nodes
        ("0", "cpu=4,mem=64G,node=1", None),  # all that the node has
        ("0n", "cpu=4,mem=64G,node=1", None),
        ("16G", "cpu=8,mem=16G", None),  # on how many nodes is not told
    ],
)
def test_memory_requested_is_that_of_a_node_in_every_version(
    asked: str, tres: str, gib: float | None
) -> None:
    task = newest_by_id(row("12", "COMPLETED", ReqMem=asked, AllocTRES=tres))["12"]
    assert task.requested_mem_bytes == (gib * 2**30 if gib is not None else None)


def test_who_cancelled_is_left_out_of_the_state() -> None:
    assert newest_by_id(row("12", "CANCELLED by 1000"))["12"].state == "CANCELLED"


def test_a_signal_is_distinguished_from_an_exit_code() -> None:
    task = newest_by_id(row("12", "OUT_OF_MEMORY", ExitCode="0:125"))["12"]
    assert (task.exit_code, task.signal) == (0, 125)


def test_a_task_gets_the_largest_memory_of_its_own_steps() -> None:
    text = "\n".join(
        [
            row("12_0", "COMPLETED"),
            row("12_0.batch", "COMPLETED", MaxRSS="1500K"),
            row("12_0.extern", "COMPLETED", MaxRSS=""),
            row("12_0.0", "COMPLETED", MaxRSS="2.5G"),
            row("12_1", "COMPLETED"),
            row("12_1.batch", "COMPLETED", MaxRSS="3M"),
            row("12_2", "RUNNING"),
        ]
    )
    tasks = newest_by_id(text)
    assert set(tasks) == {"12_0", "12_1", "12_2"}
    assert tasks["12_0"].max_rss_bytes == 2.5 * 2**30
    assert tasks["12_1"].max_rss_bytes == 3 * 2**20
    assert tasks["12_2"].max_rss_bytes is None


def test_what_has_not_begun_has_no_times() -> None:
    pending = {"Start": "Unknown", "End": "Unknown", "NodeList": "None assigned"}
    text = row("12_[0-2%1]", "PENDING", **pending, AllocTRES="", TimelimitRaw="UNLIMITED")
    tasks = newest_by_id(text)
    assert set(tasks) == {"12_0", "12_1", "12_2"}
    task = tasks["12_1"]
    assert (task.start_unix_s, task.end_unix_s, task.node_list) == (None, None, "")
    assert (task.time_limit_s, task.num_gpus) == (None, 0)


@pytest.mark.parametrize(
    ("tres", "num_gpus"),
    [
        ("billing=8,cpu=8,gres/gpu=4,mem=64G,node=2", 4),
        ("cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G", 4),
        ("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1,mem=64G", 3),
        ("cpu=8,mem=64G", 0),
    ],
)
def test_gpus_are_counted_with_and_without_types(tres: str, num_gpus: int) -> None:
    assert newest_by_id(row("12", "COMPLETED", AllocTRES=tres))["12"].num_gpus == num_gpus


def test_lines_of_another_form_above_the_rows_are_left_out() -> None:
    assert set(newest_by_id(f"12|FAILED\n{row('13', 'FAILED')}")) == {"13"}


def test_rows_of_which_none_has_the_fields_requested_are_no_answer() -> None:
    with pytest.raises(SchedulerError, match="`sacct` did not print the 16 fields"):
        newest_by_id("12|FAILED\n")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5G", 1.5 * 2**30),
        ("512M", 2**29),
        ("1000K", 1024000),
        ("4Gn", 2**32),
        ("2Gc", 2**31),
        ("0", 0),
        ("", None),
        ("?", None),
        ("1.2.3G", None),
    ],
)
def test_sizes_are_read_in_every_unit(text: str, number: float | None) -> None:
    assert parse_bytes(text) == number


def test_a_requeued_job_has_one_row_a_start_each_with_its_own_memory() -> None:
    def line(job_id: str, state: str, start: int, rss: str) -> str:
        values = dict.fromkeys(SACCT_FIELDS, "")
        values |= {"JobID": job_id, "State": state, "Start": str(start), "MaxRSS": rss}
        return "|".join(values[name] for name in SACCT_FIELDS)

    text = "\n".join(
        [
            line("7", "REQUEUED", 100, ""),
            line("7.batch", "CANCELLED", 100, "10M"),
            line("7", "COMPLETED", 200, ""),
            line("7.batch", "COMPLETED", 200, "30M"),
            line("7.0", "COMPLETED", 200, "20M"),
        ]
    )
    starts = parse_sacct(text)
    assert [(t.state, t.start_unix_s, t.max_rss_bytes) for t in starts] == [
        ("REQUEUED", 100.0, 10 * 2**20),
        ("COMPLETED", 200.0, 30 * 2**20),
    ]
    assert newest_by_id(text)["7"].state == "COMPLETED"


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", True),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            False,
        ),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller", False),
        (
            "sbatch: unrecognized option '--x=1'\nTry \"sbatch --help\" for more information",
            True,
        ),
        ("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", True),
        ("sbatch: fatal: Could not establish a configuration source: connection refused", True),
        ("sbatch: unrecognized option '--x'", True),
        ("sbatch: invalid option -- 'x'", True),
        ("sbatch: option '--mem' requires an argument", True),
        ("sbatch: option '--m' is ambiguous; possibilities: '--mem' '--mem-bind'", True),
        ("", False),
        ("Killed", False),
    ],
)
def test_only_a_clear_refusal_counts_as_one(said: str, refused: bool) -> None:
    assert is_refusal(said) is refused

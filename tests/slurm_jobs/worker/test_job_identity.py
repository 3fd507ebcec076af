"""The job that a task is in, by its environment; a script stands in for `scontrol`."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.local import LocalBook
from slurm_jobs.worker.job_identity import (
    JobEnvironment,
    free_port,
    is_preempted,
    keep_kind,
    kind_of_node,
    main_address,
    rank_variables,
    read_environment,
    requeue,
)
from tests.slurm_jobs.worker.orders import environment, order

LOCAL = {
    "SLURM_JOBS_LOCAL_JOB_ID": "12",
    "SLURM_JOBS_LOCAL_TASK_ID": "12_3",
    "SLURM_JOBS_LOCAL_RESTART_COUNT": "2",
    "SLURM_JOBS_LOCAL_END_UNIX_S": "1700000000.5",
}
SLURM = {"SLURM_JOB_ID": "40", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_END_TIME": "1700000000"}
SHOWS_JOB = """\
case "$*" in
  "show job 12_3") echo "JobId=15 ArrayJobId=12 ArrayTaskId=3 JobName={name}"
    echo "   JobState=RUNNING Reason=None" ;;
  "requeue 12_3") ;;
  *) exit 1 ;;
esac"""
ELEMENT = {"SLURM_ARRAY_JOB_ID": "38", "SLURM_ARRAY_TASK_ID": "7", "SLURM_RESTART_COUNT": "1"}


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a `scontrol` of a shell script, the only command there is."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(script: str) -> None:
        (folder / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "scontrol").chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("scheduler", "is_array", "variables", "expected"),
    [
        ("local", True, LOCAL, ("12_3", (3,), 2)),
        ("local", False, {**LOCAL, "SLURM_JOBS_LOCAL_TASK_ID": "12"}, ("12", (0,), 2)),
        ("local", True, {**SLURM, **ELEMENT, **LOCAL}, ("12_3", (3,), 2)),
        ("slurm", False, {**LOCAL, **SLURM}, ("40", (0,), 0)),
        ("slurm", False, SLURM, ("40", (0,), 0)),
        ("slurm", True, {**SLURM, **ELEMENT}, ("38_7", (7,), 1)),
        ("slurm", False, {**SLURM, **ELEMENT}, ("40", (0,), 1)),
    ],
    ids=[
        "local array task",
        "local job",
        "local job inside a Slurm job",
        "Slurm job inside a local one",
        "Slurm job",
        "Slurm array task",
        "Slurm job that an array task submitted",
    ],
)
def test_the_schedulers_variables_say_who_a_job_is(
    scheduler: str, variables: dict[str, str], expected: tuple[object, ...], *, is_array: bool
) -> None:
    found = read_environment(order(scheduler=scheduler, is_array=is_array), variables)
    assert (found.element_id, found.slices, found.restart) == expected
    where = (found.node_names, found.deadline_unix_s, found.is_slurm)
    if scheduler == "local":
        assert where == (("local0", "local1"), 1700000000.5, False)
    else:
        assert where == (("n1",), 1700000000.0, True)


def test_a_packed_element_works_through_its_share_of_the_slices() -> None:
    packed = dataclasses.replace(order(), slices=(1, 4, 5, 8, 9), slices_per_task=2, is_array=True)
    element = {**ELEMENT, "SLURM_ARRAY_TASK_ID": "2"}
    assert read_environment(packed, {**SLURM, **element}).slices == (9,)
    local = {**LOCAL, "SLURM_JOBS_LOCAL_TASK_ID": "12_1"}
    packed = dataclasses.replace(packed, scheduler="local")
    assert read_environment(packed, local).slices == (5, 8)


@pytest.mark.parametrize("end", [None, "", "Unknown"])
def test_the_limit_counts_from_now_if_slurm_does_not_say_when_a_job_ends(
    end: str | None,
) -> None:
    variables = {key: value for key, value in SLURM.items() if key != "SLURM_JOB_END_TIME"}
    if end is not None:
        variables["SLURM_JOB_END_TIME"] = end
    assert read_environment(order(), variables).deadline_unix_s == pytest.approx(
        time.time() + 30 * 60, abs=30
    )


def test_a_process_that_no_scheduler_started_has_no_environment() -> None:
    with pytest.raises(KeyError, match="SLURM_JOB_ID"):
        read_environment(order(), {})


@pytest.mark.parametrize("nodes", ["n[1-2]", "n1,n2"])
def test_several_nodes_are_named_by_scontrol(nodes: str, scontrol: Callable[[str], None]) -> None:
    scontrol(f'[ "$*" = "show hostnames {nodes}" ] && echo n1 && echo n2')
    found = read_environment(order(), {**SLURM, "SLURM_JOB_NODELIST": nodes})
    assert found.node_names == ("n1", "n2")


@pytest.mark.parametrize("script", [None, "exit 1"], ids=["missing", "failing"])
def test_without_scontrol_the_list_of_nodes_stays_as_slurm_wrote_it(
    scontrol: Callable[[str], None], script: str | None
) -> None:
    if script is not None:
        scontrol(script)
    found = read_environment(order(), {**SLURM, "SLURM_JOB_NODELIST": "n[1-2]"})
    assert found.node_names == ("n[1-2]",)


def test_where_slurm_names_no_nodes_the_node_names_itself() -> None:
    variables = {**SLURM, "SLURM_JOB_NODELIST": "", "SLURMD_NODENAME": "n9"}
    assert read_environment(order(), variables).node_names == ("n9",)
    del variables["SLURMD_NODENAME"]
    assert read_environment(order(), variables).node_names == (socket.gethostname(),)


@pytest.mark.parametrize(
    ("main_addr", "where", "expected"),
    [
        ("10.0.0.1", environment("nosuch.invalid", "n2"), "10.0.0.1"),
        (None, environment("n1"), "127.0.0.1"),
        (None, environment("local0", "local1", is_slurm=False), "127.0.0.1"),
        (None, environment("localhost", "n2"), "localhost"),
    ],
    ids=["the profile's address", "one node", "this machine", "the first of several nodes"],
)
def test_ranks_meet_at_one_address(
    main_addr: str | None, where: JobEnvironment, expected: str
) -> None:
    assert main_address(order(main_addr=main_addr), where) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo NodeName=nosuch.invalid NodeAddr=10.1.2.3 State=IDLE", "10.1.2.3"),
        ("exit 1", socket.gethostname()),
    ],
)
def test_a_name_that_does_not_resolve_is_looked_up_in_slurm(
    scontrol: Callable[[str], None], script: str, expected: str
) -> None:
    scontrol(script)
    assert main_address(order(), environment("nosuch.invalid", "n2")) == expected


def test_a_local_task_is_requeued_through_the_book(tmp_path: Path) -> None:
    assert requeue(order(tmp_path), environment("local0", is_slurm=False), gpu="") is None
    assert LocalBook(RunPaths(tmp_path).local_dir).take_requests("requeue") == ["12_3"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (SHOWS_JOB.format(name="n"), None),
        (
            SHOWS_JOB.format(name="other"),
            "Slurm's controller has another job under the id 12_3",
        ),
        ("echo no such job >&2; exit 1", "scontrol requeue failed: no such job"),
        (None, "scontrol is missing on this node; `slurm-jobs resume` runs it again"),
    ],
)
def test_a_requeue_says_why_it_was_not_possible(
    scontrol: Callable[[str], None], script: str | None, expected: str | None
) -> None:
    if script is not None:
        scontrol(script)
    assert requeue(order(), environment("n1"), gpu="") == expected


@pytest.mark.parametrize("names", ["srun", "supervisor"])
def test_a_rank_learns_who_it_is_from_srun_or_the_supervisor(
    monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    given = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURMD_NODENAME": "n"}
    if names == "supervisor":  # its word wins: the batch process itself has a SLURM_PROCID of 0
        given |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
        given |= {"SLURM_JOBS_RANK": "5", "SLURM_JOBS_LOCAL_RANK": "1"}
        given |= {"SLURM_JOBS_NODE_RANK": "2", "SLURM_JOBS_NODE_NAME": "n"}
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    assert rank_variables() == {"rank": 5, "local_rank": 1, "node_rank": 2, "node_name": "n"}


def test_a_free_port_can_be_listened_on() -> None:
    with socket.socket() as listener:
        listener.bind(("", free_port()))


@pytest.mark.parametrize(
    ("clock_s", "expected"), [(1000.0, 1600.0), (1120.0, 1600.0), (400.0, 1000.0), (1600.0, 2200.0)]
)
def test_the_deadline_is_by_the_clock_of_the_node(
    monkeypatch: pytest.MonkeyPatch, clock_s: float, expected: float
) -> None:
    monkeypatch.setattr("time.time", lambda: clock_s)
    variables = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_START_TIME": "1000"}
    found = read_environment(order(nodes=1), {**variables, "SLURM_JOB_END_TIME": "1600"})
    assert found.deadline_unix_s == expected


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a `scontrol` that prints the file `out` and notes its arguments."""
    (tmp_path / "scontrol").write_text(
        f'#!/bin/bash\necho "$*" >> {tmp_path}/calls\necho "$(<{tmp_path}/out)"\n'
        f'test "$(wc -l < {tmp_path}/calls)" -gt "$(<{tmp_path}/fails)"\n'
    )
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "fails").write_text("0")
    (tmp_path / "out").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("NodeName=n1 ActiveFeatures=ib,v100 Gres=gpu:4", "v100"),
        ("NodeName=n1 ActiveFeatures=(null) Gres=gpu:a100:4(S:0-1)", "a100"),
        ("NodeName=n1 ActiveFeatures=h100 Gres=gpu:h100:8", ""),
    ],
)
def test_the_type_of_a_node_is_read_from_its_features_or_gpus(
    answers: Path, said: str, expected: str
) -> None:
    (answers / "out").write_text(said)
    assert kind_of_node(order(gpu=("a100", "v100")), "n1") == expected


def test_with_one_requested_type_slurm_is_not_queried(answers: Path) -> None:
    assert kind_of_node(order(gpu=("a100",)), "n1") == ""
    assert not (answers / "calls").exists()


def test_a_requeued_job_keeps_the_constraint_of_the_user_beside_its_type(
    answers: Path,
) -> None:
    (answers / "fails").write_text("2")  # ended with the job, twice
    given = order(gpu=("a100", "v100"), slurm={"constraint": "ib"})
    assert keep_kind(given, "12_3", "v100") is None
    calls = (answers / "calls").read_text().splitlines()
    assert calls == ["update JobId=12_3 Features=v100&ib"] * 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("PreemptEligibleTime=1764425000 PreemptTime=1764425010", True),
        ("PreemptEligibleTime=1764425000 PreemptTime=None", False),
        ("JobState=RUNNING", False),
    ],
)
def test_a_job_is_preempted_once_slurm_has_set_the_time_for_it(
    scontrol: Callable[[str], None], answer: str, expected: bool
) -> None:
    scontrol(f'[ "$*" = "show job --oneliner 12_3" ] && echo "JobId=15 {answer}"')
    assert is_preempted(environment("n1")) is expected


def test_a_local_task_or_a_silent_controller_is_not_taken_for_preemption(
    scontrol: Callable[[str], None],
) -> None:
    scontrol("exit 1")
    assert not is_preempted(environment("n1"))
    assert not is_preempted(environment("n1", is_slurm=False))

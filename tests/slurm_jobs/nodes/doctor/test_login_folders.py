"""What file systems of the login node are taken to mean."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.formats.node_records.doctor_facts import FolderFacts
from slurm_jobs.nodes.doctor.login_folders import (
    folder_checks,
    quota_checks,
    quota_row,
    shared_check,
)
from slurm_jobs.nodes.doctor.site_facts import MeasuredFolder, ProgramAnswer

GB = 10**9
QUOTA = """Disk quotas for user me (uid 7):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/home 95000*  90000  100000   6days     12       0       0
server:/work  10  0  0   12  0  0
"""


def look(**changes: Any) -> MeasuredFolder:
    folder = {
        "path": "/work/runs",
        "kind": "nfs4",
        "source": "server:/work",
        "free_bytes": 900 * GB,
        "total_bytes": 1000 * GB,
    }
    folder |= {key: changes.pop(key) for key in list(changes) if key in {*folder, "problem"}}
    values: dict[str, Any] = {
        "purpose": "runs_dir",
        "folder": FolderFacts(**folder),
        "write_s": 0.005,
        "quota": ProgramAnswer(text=QUOTA),
    }
    return MeasuredFolder(**{**values, **changes})


def test_a_folder_where_all_is_well_has_nothing_but_ok() -> None:
    assert {c.standing for c in [*folder_checks(look()), *quota_checks([look()])]} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "name", "standing"),
    [
        ({"late": "its file system did not answer"}, "runs_dir", "problem"),
        ({"problem": "Read-only file system"}, "runs_dir", "problem"),
        ({"free_bytes": GB}, "runs_dir-room", "warning"),
        ({"free_bytes": None}, "runs_dir-room", "unknown"),
        ({"free_files": 900}, "runs_dir-room", "warning"),
        ({"link_problem": "Operation not permitted"}, "hard-links", "problem"),
        ({"write_s": 0.4}, "small-files", "warning"),
        ({"write_s": None}, "small-files", "unknown"),
    ],
)
def test_each_thing_that_a_run_needs_of_it_is_judged(
    changes: dict[str, Any], name: str, standing: str
) -> None:
    found = {check.name: check.standing for check in folder_checks(look(**changes))}
    assert found[name] == standing


def test_quotas_are_read_as_both_programs_print_them() -> None:
    assert quota_row(QUOTA, "server:/home") == (95000, 90000)
    assert quota_row(QUOTA, "server:/work") == (10, 0)
    assert quota_row(QUOTA, "other:/x") is None
    lustre = "/lustre 500 0 1000 - 12 0 0 -\n"
    assert quota_row(lustre, "10.0.0.1@o2ib:/lustre") == (500, 1000)


def test_a_home_over_quota_comes_with_the_command_that_finds_large_files() -> None:
    home = look(purpose="home", path="/home/me", source="server:/home")
    (check,) = quota_checks([home])
    assert (check.name, check.standing) == ("home-quota", "problem")
    assert check.remedy.startswith("du -xh")


def test_quotas_that_cannot_be_read_are_unknown_and_reported_once() -> None:
    untold = ProgramAnswer(problem="there is no `quota` here")
    (check,) = quota_checks([look(quota=untold), look(purpose="home", quota=untold)])
    assert check.standing == "unknown"
    assert "unknown for runs_dir and home" in check.told


def test_a_local_file_system_is_shared_only_if_nodes_saw_it() -> None:
    local = look(kind="ext4")
    assert shared_check(local, []).standing == "unknown"
    assert shared_check(local, ["n1"]).standing == "ok"

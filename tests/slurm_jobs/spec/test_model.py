"""Kinds of dependency that a stage may have."""

from tests.slurm_jobs.spec.conftest import Check

SHELL = "name: a\ncluster: local\nstages:\n  s:\n    shell: x\n"


def test_each_kind_of_dependency_can_be_meant(check: Check) -> None:
    lines = check(SHELL + "  t:\n    shell: x\n    after: {s: afternotokk}\n")
    assert lines == [
        (
            "8:16: stages.t.after.s: found the text `afternotokk`; allowed: `afterok`, `afterany`, "
            "`afternotok` or `aftercorr`; did you mean `afternotok`?"
        )
    ]

"""Slice after slice of two arrays, on this machine and on the test cluster."""

from __future__ import annotations

import pytest

from tests.end_to_end.driver import Driver, stage_of, wait_for, words_of

SPEC = """
name: pairs
cluster: CLUSTER
stages:
  fetch:
    shell: |
      case $SLURM_JOBS_SLICE in
        1) test -e mended ;;
        2) until test -e go; do sleep 0.1; done ;;
      esac
    array: {num_slices: 3}
    resources: {timeout_min: 5, mem_gb: 0.2}
  clean:
    shell: "true"
    after: {fetch: aftercorr}
    array: {num_slices: 3}
    resources: {timeout_min: 5, mem_gb: 0.2}
  merge: {shell: "true", after: clean, resources: {mem_gb: 0.2}}
  tell: {shell: "true", after: {merge: afterany}, resources: {mem_gb: 0.2}}
  mend: {shell: "true", after: {merge: afternotok}, resources: {mem_gb: 0.2}}
"""


@pytest.fixture(
    params=[("local", "local"), pytest.param(("on_slurm", "auto"), marks=pytest.mark.cluster)],
    ids=["local", "slurm"],
)
def driver(request: pytest.FixtureRequest) -> Driver:
    name, cluster = request.param
    found: Driver = request.getfixturevalue(name)
    found.write("spec.yaml", SPEC.replace("CLUSTER", cluster))
    return found


def test_a_slice_starts_after_its_counterpart_and_is_stranded_with_it(
    driver: Driver,
) -> None:
    run_dir = driver.submit("spec.yaml")
    for mark in ("attempts/fetch/s00002.*", "completions/clean/s00000.*"):
        wait_for(lambda mark=mark: list(run_dir.glob(mark)), mark)
    status = driver.status(run_dir)
    assert stage_of(status, "fetch")["slices_by_status"]["running"] == "2"
    assert stage_of(status, "clean")["slices_by_status"]["completed"] == "0"
    driver.write("go", "")
    status = driver.wait(run_dir)
    assert words_of(status) == {
        "fetch": "failed",
        "clean": "stranded",
        "merge": "stranded",
        "tell": "completed",
        "mend": "completed",  # though `merge` never starts
    }
    clean = stage_of(status, "clean")
    assert clean["slices_by_status"] == {"completed": "0,2", "stranded": "1"}
    assert "`fetch` slice 1 failed" in driver.run("status", str(run_dir), check=1).stdout
    driver.write("mended", "")
    resumed = driver.json("resume", str(run_dir))
    assert [(job["stage"], job["slices"]) for job in resumed["jobs"]] == [
        ("fetch", "1"),
        ("clean", "1"),
        *((name, "0") for name in ("merge", "tell", "mend")),
    ]
    status = driver.wait(run_dir)
    assert status["status"] == "completed"
    assert stage_of(status, "mend")["reason"] == "not needed: `merge` completed"

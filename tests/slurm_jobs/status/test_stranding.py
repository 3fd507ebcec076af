"""What comes after a held job, by every kind of dependency and at every depth."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.run_values import StageSummary
from slurm_jobs.status.run_status import RunStatus
from tests.slurm_jobs.runs import (
    DONE,
    FAILED,
    NEVER,
    WAITS,
    Ends,
    intent,
    reconciled,
    stage,
    statuses,
)

HELD = "PENDING:JobHeldUser"
KINDS = ("afterok", "afterany", "afternotok", "aftercorr")


def with_a_held_slice(stages: Sequence[StageSummary], other: str) -> RunStatus:
    """A run of which slice 1 of the first stage is held, and slice 0 has ended as `other`.

    Slurm starts the slices of the other stages whose dependencies are met, and removes those whose
    dependencies can no longer be met.
    """
    first, *rest = stages
    states = {f"{first.name}_0": other, f"{first.name}_1": HELD}
    for each in rest:
        for index in range(each.num_slices):
            state = WAITS
            if index == 0 and set(each.after.values()) == {"aftercorr"}:
                words = {states[f"{parent}_0"] for parent in each.after}
                state = "COMPLETED" if words == {"COMPLETED"} else state
                state = "CANCELLED" if words & {"FAILED", "CANCELLED"} else state
            states[f"{each.name}_{index}" if each.is_array else each.name] = state
    ends: dict[str, Ends] = {
        each.name: {0: DONE if states[f"{each.name}_0"] == "COMPLETED" else FAILED}
        for each in stages
        if states.get(f"{each.name}_0") in {"COMPLETED", "FAILED"}
    }
    return reconciled(stages, states, ends=ends)


CHAINS = [kinds for depth in (1, 2, 3, 4) for kinds in itertools.product(KINDS, repeat=depth)]


@pytest.mark.parametrize("other", ["COMPLETED", "FAILED"])
@pytest.mark.parametrize("kinds", CHAINS, ids=" ".join)
def test_nothing_waits_for_a_held_slice_by_any_kind_at_any_depth(
    kinds: Sequence[str], other: str
) -> None:
    stages = [stage("s0", 2)]
    stages += [stage(f"s{n}", 2, **{f"s{n - 1}": kind}) for n, kind in enumerate(kinds, 1)]
    found = with_a_held_slice(stages, other)
    assert found.status == ("stranded" if other == "COMPLETED" else "failed")
    for each in found.stages[1:]:
        assert each.status == "stranded"
        assert each.slices[1].reason in {
            "`s0` is held (JobHeldUser)",
            "`s0` slice 1 is held (JobHeldUser)",
            "`s0` has slices that failed or were cancelled",
        }


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_stage_without_an_array_waits_with_a_slice_that_is_stuck(kind: str) -> None:
    stages = [stage("fan", 2), stage("pair", 2, fan="aftercorr"), stage("total", pair=kind)]
    stages += [stage("sorry", total="afternotok"), stage("tell", total="afterany")]
    found = with_a_held_slice(stages, "COMPLETED")
    assert statuses(found) == "stranded stranded stranded stranded stranded -> stranded"
    assert {part.reason for part in found.stages[1:]} == {"`fan` slice 1 is held (JobHeldUser)"}


def test_what_still_runs_below_a_held_slice_is_waited_for() -> None:
    stages = [stage("a", 2), stage("b", 2, a="aftercorr"), stage("c", b="afterany")]
    states = {"a_1": HELD, "b_0": "RUNNING", "b_1": WAITS, "c": WAITS}
    found = reconciled(stages, states, ends={"a": {0: DONE}})
    assert statuses(found) == "stranded running waiting -> running"


@pytest.mark.parametrize("order", [("a", "held"), ("held", "a")])
@pytest.mark.parametrize("state", [WAITS, "CANCELLED"])
def test_a_job_that_slurm_removes_holds_up_nothing_though_a_parent_is_held(
    order: tuple[str, str], state: str
) -> None:
    """Of several dependencies the failed one decides, and removes also a job that is held."""
    stages = [stage("a"), stage("held"), stage("b", **dict.fromkeys(order, "afterok"))]
    stages += [stage("tell", b="afterany")]
    states = {"a": "FAILED", "held": HELD, "b": state, "tell": WAITS}
    found = reconciled(stages, states, ends={"a": {0: FAILED}})
    assert statuses(found) == "failed stranded stranded waiting -> waiting"


def test_a_held_job_that_is_not_needed_is_removed_and_holds_up_nothing() -> None:
    stages = [stage("a"), stage("mail", a="afternotok"), stage("end", mail="afterany")]
    found = reconciled(stages, {"mail": HELD, "end": WAITS}, ["a"])
    assert statuses(found) == "completed stranded waiting -> waiting"


@pytest.mark.parametrize("words", [NEVER, "Dependency_never_satisfied"])
def test_a_job_of_an_earlier_version_strands_what_comes_after_it(words: str) -> None:
    stages = [stage("a"), stage("mail", a="afternotok"), stage("end", mail="afterany")]
    found = reconciled(stages, {"mail": f"PENDING:{words}", "end": WAITS}, ["a"])
    assert statuses(found) == "completed stranded stranded -> stranded"
    assert found.stage("end").reason == "`mail` can never start"


@pytest.mark.parametrize("kind", ["afterok", "afterany"])
def test_below_a_partly_unmet_stage_that_stage_is_named_as_the_cause(kind: str) -> None:
    stages = [stage("a", 2), stage("b", 2, a="aftercorr"), stage("c", b=kind), stage("d", c=kind)]
    states = {"a_0": "COMPLETED", "a_1": f"PENDING:{NEVER}", "b_0": "FAILED"}
    states |= dict.fromkeys(["b_1", "c", "d"], WAITS)
    found = reconciled(stages, states, ends={"a": {0: DONE}, "b": {0: FAILED}})
    assert found.stage("b").slices[1].wait == "unmet"
    assert [found.stage(name).reason for name in "cd"] == ["`b` can never start"] * 2


def _key(number: int, element: str = "") -> JobKey:
    return JobKey(f"n{number}", f"{number}{element}")


def test_jobs_of_a_stage_that_run_in_turns_wait_for_the_held_first() -> None:
    """A stage has several arrays where the site limits their size; `max_running` chains them."""
    jobs = [
        intent(number, "a", str(number), slices=(number - 1,), is_array=True, dependencies=after)
        for number, after in [(1, {}), (2, {"afterany": (_key(1),)}), (3, {"afterany": (_key(2),)})]
    ]
    jobs.append(intent(4, "b", "4", dependencies={"afterany": (_key(1), _key(2), _key(3))}))
    states = {"1_0": HELD, "2_1": WAITS, "3_2": WAITS, "4": WAITS}
    found = reconciled([stage("a", 3), stage("b", a="afterany")], states, intents=jobs)
    assert statuses(found) == "stranded stranded -> stranded"
    reasons = [part.reason for part in found.stage("a").slices]
    assert reasons == ["held (JobHeldUser)", *["`a` slice 0 is held (JobHeldUser)"] * 2]


@pytest.mark.parametrize("other", ["COMPLETED", "FAILED"])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_job_with_afterok_for_aftercorr_waits_for_every_held_slice(kind: str, other: str) -> None:
    stages = [stage("fan", 2), stage("pair", 2, fan="aftercorr"), stage("total", pair=kind)]
    jobs = [
        intent(1, "fan", "1", 2),
        intent(2, "pair", "2", 2, dependencies={"afterok": (_key(1),)}),
        intent(3, "total", "3", dependencies={kind: (_key(2),)}),
    ]
    states = {"1_0": other, "1_1": HELD, "2_0": WAITS, "2_1": WAITS, "3": WAITS}
    ends: dict[str, Ends] = {"fan": {0: DONE if other == "COMPLETED" else FAILED}}
    found = reconciled(stages, states, intents=jobs, ends=ends)
    assert found.status == ("stranded" if other == "COMPLETED" else "failed")
    assert [part.status for part in found.stages[1:]] == ["stranded", "stranded"]


def test_a_job_that_waits_for_one_element_is_stuck_with_that_element() -> None:
    stages = [stage("a", 2), stage("b", 2, a="aftercorr"), stage("c", b="afterany")]
    jobs = [
        intent(1, "a", "1", 2),
        intent(2, "b", "2", 2, dependencies={"afterok": (_key(1, "_1"),)}),
        intent(3, "c", "3"),
    ]
    states = {"1_0": "RUNNING", "1_1": HELD, "2_0": WAITS, "2_1": WAITS, "3": WAITS}
    found = reconciled(stages, states, intents=jobs)
    assert [part.status for part in found.stage("b").slices] == ["stranded", "stranded"]
    assert found.stage("c").status == "stranded"

"""What is said of wall clocks; records and spans are made up."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from slurm_jobs.report.inputs import RankTiming
from slurm_jobs.report.steps import split_attempts, step_notes
from slurm_jobs.shared.timings import StepFile

Span = Mapping[str, object]
NotesOf = Callable[..., tuple[str, ...]]


@pytest.fixture
def notes_of(fabrication) -> NotesOf:
    def make(steps: np.ndarray, spans: Sequence[Span] = ()) -> tuple[str, ...]:
        file = StepFile(metadata={"num_ranks": 1}, steps=steps)
        timing = RankTiming(slice_index=0, attempt=1, rank=0, steps=file, spans=tuple(spans))
        return step_notes(split_attempts([timing], 5, {}))

    return make


@pytest.fixture
def steps(fabrication) -> np.ndarray:
    return fabrication.fabricate_steps(
        fabrication.Scenario(num_ranks=1), 0, 0, 60, fabrication.CREATED
    )


def interrupted(steps: np.ndarray, name: str, before: int, duration_s: float) -> Span:
    """Have a rank do something else before a step; the span that it writes of that."""
    start_unix_s = float(steps["start_unix_s"][before])
    steps["start_unix_s"][before:] += duration_s
    return {"name": name, "start_unix_s": start_unix_s, "duration_s": duration_s}


def test_a_profile_that_is_written_between_two_steps_sets_no_clock(
    steps: np.ndarray, notes_of: NotesOf
) -> None:
    spans = [
        interrupted(steps, "profile_prepare", 20, 1.5),
        interrupted(steps, "profile_write", 23, 13.0),
    ]
    assert notes_of(steps, spans) == ()
    assert "wall clock" in notes_of(steps)[0]  # where nothing says what it was


def test_a_clock_that_is_set_is_named_beside_a_profile_too(
    steps: np.ndarray, notes_of: NotesOf
) -> None:
    spans = [interrupted(steps, "profile_write", 20, 13.0)]
    steps["start_unix_s"][40:] -= 100.0
    (note,) = notes_of(steps, spans)
    assert "the clock was set" in note


def test_spans_that_lie_within_steps_explain_no_gap(steps: np.ndarray, notes_of: NotesOf) -> None:
    interrupted(steps, "", 30, 13.0)
    inside = {"name": "checkpoint", "start_unix_s": float(steps["start_unix_s"][10])}
    (note,) = notes_of(steps, [{**inside, "duration_s": 0.4}])
    assert "gaps between steps" in note


@pytest.mark.parametrize(
    ("second", "begun", "repeated", "abandoned"),
    [
        ("ab", 3, [3, 4, 5, 6, 7, 8], []),
        ("ab2", 3, [], [3, 4, 5, 6, 7, 8]),
        ("ab2", 1, [1, 2], [3, 4, 5, 6, 7, 8]),
        ("ab2", 5, [5, 6, 7, 8], []),  # went on from a checkpoint of that phase all the same
    ],
)
def test_steps_of_a_phase_that_was_changed_are_other_work_and_those_before_it_are_not(
    fabrication, second: str, begun: int, repeated: list[int], abandoned: list[int]
) -> None:
    steps = fabrication.fabricate_steps(
        fabrication.Scenario(num_ranks=1), 0, 0, 9, fabrication.CREATED
    )
    timings = []
    for attempt, own, last in ((1, steps, "ab"), (2, steps[begun:7], second)):
        phases = [{"first_step": 0, "training": "a"}, {"first_step": 3, "training": last}]
        metadata = {"num_ranks": 1, "training": last, "phases": phases}
        file = StepFile(metadata=metadata, steps=own)
        timings.append(RankTiming(slice_index=0, attempt=attempt, rank=0, steps=file, spans=()))
    first, _ = split_attempts(timings, 0, {1: "one", 2: "two"})
    assert first.kept(0)["step"].tolist() == list(range(begun))
    assert first.repeated(0)["step"].tolist() == repeated
    assert first.abandoned(0)["step"].tolist() == abandoned


def test_steps_whose_records_are_lost_between_two_attempts_are_told(fabrication) -> None:
    scenario, created = fabrication.Scenario(num_ranks=1), fabrication.CREATED
    timings = [
        RankTiming(
            slice_index=0, attempt=attempt, rank=0, spans=(),
            steps=StepFile(
                metadata={"num_ranks": 1, "training": "one"},
                steps=fabrication.fabricate_steps(scenario, 0, first, last, created + at),
            ),
        )
        for attempt, first, last, at in ((1, 0, 100, 0.0), (3, 170, 200, 1000.0))
    ]  # fmt: skip
    (note,) = step_notes(split_attempts(timings, 5, {}))
    assert note == (
        "attempt 3: begins at step 170, and of the 70 steps before it there are no records: they "
        "are in no rate"
    )


@pytest.mark.parametrize(("places", "is_told"), [((50, 60), True), ((), False), ((20, 30), False)])
def test_a_loss_that_is_no_number_at_the_end_is_told(
    steps: np.ndarray, notes_of: NotesOf, places: Sequence[int], is_told: bool
) -> None:
    if places:
        steps["loss"][slice(*places)] = np.nan
    notes = notes_of(steps)
    assert any("the loss of the last 10 steps is no number" in note for note in notes) == is_told


def test_a_loss_that_some_steps_alone_write_is_no_trouble(
    steps: np.ndarray, notes_of: NotesOf
) -> None:
    steps["loss"][np.arange(60) % 10 != 9] = np.nan
    assert notes_of(steps[:58]) == ()

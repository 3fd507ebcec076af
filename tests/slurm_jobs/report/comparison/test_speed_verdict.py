"""What two arms allow to be said: against Welch's test by hand, and by simulation."""

import math

import numpy as np
import pytest

from docs.tools.study_tables import PREFETCH
from docs.tools.study_tables import arm as study_arm
from slurm_jobs.report.comparison.speed_verdict import MAX_RUNS, interval, judge, judge_single


def test_a_clear_gain_is_faster_and_the_same_backwards_is_slower():
    a, b = [100.0, 101.0, 99.5], [110.0, 111.0, 109.0]
    forward, backward = judge(a, b), judge(b, a)
    assert (forward.word, backward.word) == ("faster", "slower")
    assert forward.ratio == pytest.approx(1 / backward.ratio)
    assert forward.low == pytest.approx(1 / backward.high)
    assert 1 < forward.low < forward.ratio < forward.high


def test_the_interval_is_welchs():
    a, b = [math.exp(v) for v in (1.0, 1.2, 1.1)], [math.exp(v) for v in (1.5, 1.9)]
    found = judge(a, b)
    # by hand: variances 0.01 and 0.08, standard error of the difference sqrt(0.01/3 + 0.08/2)
    # = 0.20817, 1.168 degrees of freedom, t 9.14 (between 12.706 at 1 and 4.303 at 2)
    assert math.log(found.ratio) == pytest.approx(0.6)
    half = math.log(found.high / found.ratio)
    assert 4.303 * 0.20817 < half < 12.706 * 0.20817
    assert half == pytest.approx(math.log(found.ratio / found.low))


@pytest.mark.parametrize(
    ("num_first", "first_spread", "num_second", "second_spread"),
    [(2, 0.03, 8, 0.01), (2, 0.03, 5, 0.01)],
)
def test_equal_settings_are_seldom_called_different_with_unlike_arms(
    num_first, first_spread, num_second, second_spread
):
    random = np.random.default_rng(0)
    num_trials, claimed = 100, 0
    for _ in range(num_trials):
        first = np.exp(random.normal(0, first_spread, num_first))
        second = np.exp(random.normal(0, second_spread, num_second))
        claimed += judge(first.tolist(), second.tolist()).word in {"faster", "slower"}
    assert claimed / num_trials <= 0.06


def test_more_runs_of_unlike_arms_are_so_many_more_of_each():
    """Each arm gets them: the larger one stays larger, and its runs count, too."""
    first, second = [100.0, 103.0], [101.0, 104.5, 102.0, 105.0, 103.0, 104.0]
    more = judge(first, second).more_runs
    assert more is not None
    assert 0 < more < judge(first, second[:2]).more_runs


def test_speeds_that_are_close_are_equal_even_where_they_surely_differ():
    close = judge([100.0, 100.02, 99.98], [100.5, 100.52, 100.48])
    assert close.word == "equal"
    assert close.low > 1  # a difference, of less than anybody cares for


def test_wide_spread_says_how_many_more_runs_would_tell():
    few = judge([100.0, 108.0], [104.0, 113.0])
    assert few.word == "cannot tell"
    assert few.more_runs is not None
    assert few.more_runs > 0
    less = judge([100.0, 102.0], [104.0, 106.5])
    assert less.word == "cannot tell"
    assert less.more_runs is not None
    assert less.more_runs < few.more_runs


def test_the_number_of_further_runs_is_omitted_above_a_limit():
    found = judge([50.0, 150.0], [50.4, 152.0])
    assert found.word == "cannot tell"
    assert found.more_runs is None or found.more_runs <= MAX_RUNS


def test_runs_without_any_spread_have_an_exact_ratio():
    found = judge([100.0, 100.0], [120.0, 120.0])
    assert (found.word, found.low, found.high) == ("faster", pytest.approx(1.2), pytest.approx(1.2))


def test_the_suggested_number_of_runs_gives_a_verdict():
    """In three of four trials with the ratio and the spread that the first runs had."""
    random = np.random.default_rng(0)
    first, second = [100.0, 103.0, 98.0], [104.0, 100.0, 105.0]
    more = judge(first, second).more_runs
    assert more is not None
    spread = math.sqrt((np.var(np.log(first), ddof=1) + np.var(np.log(second), ddof=1)) / 2)
    change, told = math.log(judge(first, second).ratio), 0
    for _ in range(100):
        a = np.exp(random.normal(0, spread, 3 + more))
        b = np.exp(random.normal(change, spread, 3 + more))
        told += judge(a.tolist(), b.tolist()).word != "cannot tell"
    assert told > 40  # half of the trials, as the interval is just so wide on the mean


@pytest.mark.parametrize("speeds", [[1.0], [1.0, 0.0], [1.0, -2.0], [1.0, math.nan]])
def test_what_is_no_speed_or_a_single_run_is_refused(speeds):
    with pytest.raises(ValueError, match=r"runs an arm are needed|must be above 0"):
        judge(speeds, [1.0, 2.0])


def test_single_runs_are_only_called_different_here():
    rng = np.random.default_rng(1)
    slow, fast = (rng.normal(mean, 0.5, 10).tolist() for mean in (100.0, 104.0))
    assert judge_single(slow, fast).word == "different here"
    assert judge_single(slow, slow[::-1]).word == "alike here"


def test_the_interval_of_one_run_has_no_end():
    assert interval([5.0]) == (pytest.approx(5.0), 0.0, math.inf)
    mean, low, high = interval([4.0, 9.0])
    assert mean == pytest.approx(6.0)
    assert low < 4
    assert high > 9


def test_the_gain_of_prefetch_in_the_small_vlm_needs_seven_runs_of_each():
    """3059 +- 99 against 3164 +- 59 tokens/s, if +- is the spread from run to run."""
    words = {n: judge(*(study_arm(*figures, n) for figures in PREFETCH)).word for n in (2, 3, 6, 7)}
    assert words == {2: "cannot tell", 3: "cannot tell", 6: "cannot tell", 7: "faster"}

import re
from dataclasses import dataclass

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.config import (
    CheckedConfig,
    Count,
    Positive,
    ShareBelowOne,
    build_config,
    with_keys_of,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner(CheckedConfig):
    size: Count = 1
    rate: Positive | None = None
    decay: ShareBelowOne = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    inner: Inner = Inner()
    maybe: Inner | None = None
    names: tuple[str, ...] = ()
    several: dict[str, Inner] | None = None


def test_a_config_comes_back_from_json_values_with_what_is_nested() -> None:
    values = {
        "inner": {"size": 2, "rate": 1},
        "maybe": {"size": 3},
        "names": ["a", "b"],
        "several": {"x": {"size": 4}},
    }
    assert build_config(Outer, values) == Outer(
        inner=Inner(size=2, rate=1.0),
        maybe=Inner(size=3),
        names=("a", "b"),
        several={"x": Inner(size=4)},
    )
    assert isinstance(build_config(Inner, {"rate": 1}).rate, float)


@dataclass(frozen=True, kw_only=True, slots=True)
class Needy:
    models: dict[str, str]
    source: str = "hub"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"source": "here"}, "needs the key `models`"),
        ({"models": {}, "sorce": 1}, "has the unknown key `sorce`; did you mean `source`?"),
        ({"x": 1}, "needs the key `models`, and has the unknown key `x`"),
    ],
)
def test_a_missing_or_unknown_key_of_a_function_is_named(values: dict, problem: str) -> None:
    message = re.escape(f"`config` (Needy) {problem} (keys: models, source)")
    with pytest.raises(StageConfigError, match=message):
        build_config(Needy, values)


def test_every_number_out_of_bounds_is_named_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"size is 0; allowed is >= 1; .*decay is 1\.0; .*< 1"):
        Inner(size=0, decay=1.0)
    with pytest.raises(ValueError, match=r"rate is 0; allowed is > 0"):
        Inner(rate=0)
    assert Inner(rate=None).rate is None


def test_keys_that_are_given_replace_those_of_a_config_and_null_is_one() -> None:
    whole = Inner(size=3, rate=2.0, decay=0.1)
    assert with_keys_of(whole, {"decay": 0, "rate": None}) == Inner(size=3, rate=None, decay=0.0)
    assert with_keys_of(whole, {}) == whole
    with pytest.raises(StageConfigError, match="sise"):
        with_keys_of(whole, {"sise": 1})

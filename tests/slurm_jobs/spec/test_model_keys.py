from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.model_keys import known_keys, places_of, refusal


def test_known_keys_are_found_through_dicts_lists_and_optionals() -> None:
    assert known_keys(RunSpec, ("stages", "x", "array")) == [
        *("num_slices", "max_running", "slices_per_task")
    ]
    train = config_class("train")
    assert known_keys(train, ("phases", 0, "schedule")) == ["kind", "warmup_share"]
    assert known_keys(train, ("num_steps",)) == []


def test_a_key_is_found_below_and_not_in_lists() -> None:
    train = config_class("train")
    assert places_of(train, "learning_rate") == [("optimizer", "learning_rate")]
    assert places_of(train, "targets") == [("adapters", "targets"), ("quantize", "targets")]


def test_a_value_is_refused_for_its_type_its_bounds_or_the_models_check() -> None:
    train = config_class("train")
    assert refusal(train, ("adapters", "rank"), 16) is None
    assert refusal(train, ("adapters", "rank"), "16") == ""
    assert refusal(train, ("adapters", "rank"), 0) == ""
    assert refusal(train, ("adapters", "targets"), []) == (
        "give `language`, or patterns of names of linear layers"
    )
    assert refusal(train, ("num_steps",), 5) is None

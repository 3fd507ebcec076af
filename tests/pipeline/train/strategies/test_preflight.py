"""The preflight ends a training that cannot run on all ranks alike; see `cases_preflight`."""

from __future__ import annotations

import pytest


def test_it_tells_what_runs_and_what_it_takes(by_rank):
    first, second = (found["preflight"] for found in by_rank)
    assert second["found"] == {}
    assert first["written"] == first["found"]
    assert [case["spans"] for case in (first, second)] == [["preflight"]] * 2
    told = first["found"]
    assert (told["precision"], told["capability"]) == ("fp32", None)
    kernels = dict.fromkeys(("vision", "language", "language, packed"), "flash")
    assert told["attention"] == kernels
    assert told["packed_attention"] == {
        "packed": "dense",
        "reason": "there is no varlen kernel for CPUs",
    }
    assert told["cudnn_attention"] in (True, False)
    assert told["memory"]["mask_bytes"] > 0
    memory = told["memory"]
    assert memory["accumulated_bytes"] > memory["gradients_bytes"] > 0
    assert memory["expected_bytes"] > memory["least_bytes"] > memory["weights_bytes"] > 0
    assert told["checkpoint_bytes"] > 2 * memory["optimizer_bytes"]
    assert 0 < told["duration_s"] < 5


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("another config on rank 1", "ranks are not alike: the stage's config is"),
        ("little memory on rank 1", "SLURM_MEM_PER_NODE gives 1.05 MB: request more memory"),
        ("a model that is too large", "must hold at least "),
        ("no model on rank 1", "(rank 1 on node-1)"),
        ("single with two ranks", "strategy is single, but the stage has 2 ranks"),
        ("a part that is none", "similar: projector"),
        ("packed weights that would not survive", "set `quantize: {storage: uint8}`"),
    ],
)
def test_what_cannot_run_is_told_by_all_ranks_in_the_same_words(by_rank, name, told):
    first, second = (found[f"preflight, {name}"]["error"] for found in by_rank)
    assert first.startswith("StageConfigError: ")
    assert told in first
    assert first == second


def test_the_rank_that_has_a_problem_is_named(found):
    error = found["preflight, little memory on rank 1"]["error"]
    assert "the ranks on node-1 must hold" in error
    assert error.endswith("(rank 1 on node-1)")


def test_a_model_that_is_too_large_is_refused_in_seconds_with_what_would_make_it_smaller(found):
    case = found["preflight, a model that is too large"]
    assert case["seconds"] < 10
    assert "train adapters instead of weights" in case["error"]

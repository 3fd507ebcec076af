"""Names of parameters that are near to a wrong pattern."""

from __future__ import annotations

import pytest

from pipeline.models.finetuning.parameter_names import near_patterns

NAMES = [
    "vision.post_layernorm.weight",
    "projector.0.weight",
    "language.model.layers.0.self_attn.q_proj.weight",
    "language.model.layers.0.self_attn.k_proj.weight",
    "language.model.layers.1.mlp.down_proj.weight",
]


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("*.q_porj.weight", "*.q_proj.weight"),
        ("*.layers.*.q_porj.weight", "*.layers.*.q_proj.weight"),
        ("*.self_atn.k_proj.weight", "*.self_attn.k_proj.weight"),
        ("projecter", "projector"),
        ("projector.1.weight", "projector.0.weight"),
    ],
)
def test_the_nearest_comes_first(pattern, nearest):
    assert near_patterns(pattern, ["projector", "language", "all"], NAMES)[0] == nearest


def test_nothing_is_suggested_where_nothing_is_near():
    assert near_patterns("xyzzy12345", ["projector"], ["a.b"]) == []

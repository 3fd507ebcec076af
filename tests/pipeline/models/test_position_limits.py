"""How many positions a language model has, and samples that are longer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from transformers import GPT2Config, LlamaConfig, Qwen2Config

from pipeline.models.position_limits import longest_sample, max_positions, positions_problem
from tests.pipeline.infos import make_info
from tests.pipeline.models.tiny import tiny_config


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (None, 32_768),
        ({"rope_type": "default", "rope_theta": 1e6}, 32_768),
        ({"rope_type": "linear", "factor": 2.0}, 65_536),
        ({"rope_type": "dynamic", "factor": 2.0}, 65_536),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
            131_072,
        ),
        (  # Llama 3.1: config.json gives the whole reach itself
            {
                "rope_type": "llama3",
                "factor": 2.0,
                "original_max_position_embeddings": 8_192,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
            32_768,
        ),
    ],
)
def test_a_scaled_rotary_embedding_reaches_factor_times_as_far(rope, expected):
    config = Qwen2Config(max_position_embeddings=32_768, rope_parameters=rope)
    assert max_positions(config) == expected


def test_a_learned_table_of_positions_is_the_limit():
    assert max_positions(GPT2Config(n_positions=77)) == 77
    assert max_positions(LlamaConfig(max_position_embeddings=2_048)) == 2_048
    assert max_positions(SimpleNamespace()) is None


@pytest.mark.parametrize("kind", ["llava", "smolvlm", "qwen2_vl", "qwen3_vl", "internvl"])
def test_the_limit_of_a_whole_model_is_its_language_models(kind):
    assert max_positions(tiny_config(kind).get_text_config()) == 4_096


class Columns:
    """Some columns of an index."""

    def __init__(self, **columns: list[int]) -> None:
        self.columns = {name: np.array(values) for name, values in columns.items()}

    def whole(self, name: str) -> np.ndarray:
        return self.columns[name]


def test_every_token_of_a_fixed_image_has_a_position():
    index = Columns(num_tokens=[8, 32, 11, 9])
    assert longest_sample(index, make_info(), 10) == (32, 2)
    assert longest_sample(Columns(num_tokens=[]), make_info(), 10) == (0, 0)


def test_tokens_of_a_native_image_share_positions():
    """Rows and columns are numbered: 10,000 tokens of a square image take 100 positions."""
    info = make_info(image_kind="native", patch_size=14, merge_size=2)
    index = Columns(
        num_tokens=[10_020, 500, 9_999],
        num_images=[1, 0, 1],
        num_pixels=[10_000 * 28 * 28, 0, 0],  # an older data set did not count pixels
    )
    assert longest_sample(index, info, 200) == (500, 1)


def test_a_sample_that_just_fits_is_no_problem():
    facts = {"limit": 10, "num_over": 0, "num_samples": 3, "source": "raise it"}
    assert positions_problem(longest=10, **facts) is None
    problem = positions_problem(longest=11, **facts | {"num_over": 1})
    assert problem is not None
    assert "11 tokens, but the language model has 10 positions (1 of 3 samples" in problem

"""Operations by formula against PyTorch's own counter of real passes (torch.utils.flop_counter).

Attention is `eager`: the counter knows no fused kernel of the CPU.
"""

import dataclasses

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe

from pipeline.data.batches.batch_work import count_work
from pipeline.models.build import build_model
from pipeline.models.computation.model_work import read_work
from pipeline.models.finetuning.adapters import add_adapters
from pipeline.models.finetuning.trained_parts import parts_of
from pipeline.timing.flops import WorkCounts, model_flops
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.model_parts import AdaptersConfig
from tests.pipeline.models.small import CONFIG as SMALL
from tests.pipeline.models.small import loss_of as small_loss
from tests.pipeline.models.small import make_facts, make_images

CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


@pytest.fixture(autouse=True)
def _countable_delta_nets(monkeypatch):
    """Delta nets whose operations torch counts as the formula does.

    transformers computes more than the delta rule, for whole chunks of tokens. Torch counts the
    weight's gradient of a depthwise convolution as that of a full one.
    """
    for modeling in (modeling_qwen3_5, modeling_qwen3_5_moe):
        monkeypatch.setattr(modeling, "torch_chunk_gated_delta_rule", delta_rule_by_token)
        monkeypatch.setattr(modeling, "causal_conv1d_fn", convolution_by_window)


def convolution_by_window(hidden, weight, _bias, activation, **_options):
    """The causal convolution, as products of the windows of each channel with its weights."""
    size = weight.shape[-1]
    windows = functional.pad(hidden, (size - 1, 0)).unfold(-1, size, 1)
    assert activation == "silu"
    return functional.silu(torch.einsum("bctk,ck->bct", windows, weight))


def delta_rule_by_token(query, key, value, *, g, beta, **_options):
    """The gated delta rule (arXiv:2412.06464, equation 10), with products that torch counts."""
    num_sharing = value.shape[2] // key.shape[2]
    keys, queries = (
        functional.normalize(each.repeat_interleave(num_sharing, dim=2), dim=-1)
        for each in (key, query)
    )
    state = value.new_zeros(*value.shape[::2], key.shape[-1], value.shape[-1])
    outputs = []
    for token in range(value.shape[1]):
        state = state * g[:, token].exp()[..., None, None]
        is_read = keys[:, token, :, None] @ state
        change = beta[:, token, :, None, None] * (value[:, token, :, None] - is_read)
        state = state + keys[:, token, :, :, None] @ change
        outputs.append((queries[:, token, :, None] @ state)[..., 0, :])
    return torch.stack(outputs, dim=1) / key.shape[-1] ** 0.5, None


def test_the_convolution_by_window_is_that_of_transformers(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(2, 12, 9, generator=draw), torch.randn(12, 4, generator=draw)
    found = convolution_by_window(hidden, weight, None, "silu")
    monkeypatch.undo()
    expected = modeling_qwen3_5.causal_conv1d_fn(hidden, weight, None, "silu")
    torch.testing.assert_close(found, expected)


def test_the_delta_rule_by_token_is_that_of_transformers(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 70, 2, 8, generator=draw) for _ in range(2))
    value = torch.randn(1, 70, 4, 16, generator=draw)
    gates = {
        "g": -torch.rand(1, 70, 4, generator=draw),
        "beta": torch.rand(1, 70, 4, generator=draw),
    }
    found, _ = delta_rule_by_token(query, key, value, **gates)
    monkeypatch.undo()
    shared = (each.repeat_interleave(2, dim=2) for each in (query, key))
    expected, _ = modeling_qwen3_5.torch_chunk_gated_delta_rule(
        *shared, value, **gates, use_qk_l2norm_in_kernel=True
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def build(kind):
    config = dataclasses.replace(kind.config, attention="eager")
    model = build_model(config, kind.facts, seed=0)
    # Torch counts no grouped products of experts.
    model.hf.set_experts_implementation("eager")
    return model


def counts_of(kind, model, batch, window_tokens=100_000):
    """Windows are as long as a row: `eager` also computes the scores that a mask then hides."""
    return count_work(
        batch,
        patch_size=model.patch_size,
        image_token_id=kind.facts.info.image_token_id,
        pad_token_id=kind.facts.info.pad_token_id,
        window_patches=read_work(model).window_patches,
        window_tokens=window_tokens,
    )


def ratio(kind, model):
    """Operations by the formula over those of a real pass each way, of a sample with two pictures.

    Layers on which nothing depends are run by transformers, and are no work of the model.
    """
    # A row without padding. Several images of Gemma 4 are padded, and with `eager` Pixtral's tower
    # also computes the scores between them.
    sample = kind.samples()[0 if kind.name in {"gemma4", "lighton_ocr", "mistral3"} else 1]
    batch = kind.batch(model, [[sample]])
    with FlopCounterMode(display=False) as counter:
        loss_of(model, to_device(batch, CPU, model.layout)).backward()
    counted = counter.get_flop_counts()
    by_layer = {name: sum(found.values()) for name, found in counted.items() if name != "Global"}
    unused = sum(
        next((flops for name, flops in by_layer.items() if name.endswith(layer)), 0)
        for layer in {name.partition(".self_attn")[0] for name in model.unused_parameters()
                      if ".self_attn" in name}
    )  # fmt: skip
    said = model_flops(read_work(model), counts_of(kind, model, batch))
    return said / (counter.get_total_flops() - unused)


def train_only(model, *wanted):
    parts = parts_of(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parts[name] in wanted and name not in model.unused_parameters())


@pytest.mark.parametrize(
    "trained", [("vision", "projector", "language"), ("projector",), ("language",)], ids=str
)
def test_the_formula_gives_what_a_pass_takes(kind, trained):
    model = build(kind)
    train_only(model, *trained)
    assert ratio(kind, model) == pytest.approx(1, abs=0.05)


def train_modules(model, *modules):
    model.requires_grad_(False)
    for module in modules:
        module.requires_grad_(True)


LATE = {
    "head": lambda model: [model.output_head()],
    "language": lambda model: [model.towers()[1][-1]],
    "vision": lambda model: [model.towers()[0][1]],
    "vision_and_head": lambda model: [model.towers()[0][1], model.output_head()],
}


@pytest.mark.parametrize("late", LATE)
def test_late_layers_and_the_head_need_no_backward_pass_of_earlier_layers(kind, late):
    model = build(kind)
    train_modules(model, *LATE[late](model))
    assert ratio(kind, model) == pytest.approx(1, abs=0.05)


def test_adapters_of_the_head_are_counted_by_learned_tokens(make_kind):
    kind = make_kind("qwen2_vl")
    model = build(kind)
    add_adapters(model, AdaptersConfig(rank=2, dropout=0.0, targets=("lm_head",)), seed=0)
    train_only(model, "adapters")
    assert set(read_work(model).language.num_weights) == {1}
    assert ratio(kind, model) == pytest.approx(1, abs=0.05)


# Torch gives a vision tower's backward to the language model, so here it is never trained.
@pytest.mark.parametrize("trained", ["projector", "language"])
def test_text_alone_takes_no_pass_of_the_vision_tower(kind, trained):
    """The small image that such a batch runs is no work of the model.

    The language model's backward is run even where the projector alone learns: ranks whose batch
    has images must meet the others in it.
    """
    model = build(kind)
    train_only(model, trained)
    batch = kind.batch(model, [[kind.samples()[2]]])
    assert batch.num_images == 0
    with FlopCounterMode(display=False) as counter:
        loss_of(model, to_device(batch, CPU, model.layout)).backward()
    by_layer = {name: sum(found.values()) for name, found in counter.get_flop_counts().items()}
    text = sum(
        flops
        for name, flops in by_layer.items()
        if name.endswith((".language_model", ".text_model", ".lm_head"))
    )
    assert model_flops(read_work(model), counts_of(kind, model, batch)) == pytest.approx(
        text, rel=0.05
    )


def test_adapters_cost_two_thirds_of_training_all_and_their_own(make_kind):
    kind = make_kind("qwen2_vl")
    model = build(kind)
    add_adapters(model, AdaptersConfig(rank=2, dropout=0.0), seed=0)
    train_only(model, "adapters")
    # Of two layers one is the first, whose matrices need no gradient of what goes in.
    assert ratio(kind, model) == pytest.approx(1, abs=0.1)
    own = sum(p.numel() for p in model.parameters() if p.requires_grad)
    whole = read_work(build(kind)).language.num_weights
    assert read_work(model).language.num_weights == {2: whole[3], 3: own}


def test_what_is_frozen_before_all_that_is_trained_has_no_backward(make_kind):
    kind = make_kind("qwen2_vl")
    model = build(kind)
    train_only(model, "projector")
    work = read_work(model)
    assert set(work.vision.num_weights) == {1}
    assert set(work.vision.attention_width) == {1}
    assert set(work.projector.num_weights) == {3}
    assert set(work.language.num_weights) == {2}
    assert set(work.language.attention_width) == {3}


def test_padding_and_the_sharing_of_rows_change_no_count(make_kind):
    kind = make_kind("qwen2_5_vl")
    model, samples = build(kind), kind.samples()
    alone = [counts_of(kind, model, kind.batch(model, [[sample]])) for sample in samples]
    packed = kind.batch(model, [samples[:3], samples[3:]], length=400)
    assert packed.num_padding_tokens > 0
    assert counts_of(kind, model, packed) == sum(alone, WorkCounts())


def test_windows_are_those_that_images_are_cut_into(make_kind):
    kind = make_kind("qwen2_5_vl")
    model = build(kind)
    batch = kind.batch(model, [[kind.samples()[1]]])
    side = read_work(model).window_patches
    pairs = 0
    for height, width in (batch.image_sizes // model.patch_size).tolist():
        for top in range(0, height, side):
            for left in range(0, width, side):
                pairs += (min(side, height - top) * min(side, width - left)) ** 2
    assert side == 4
    assert counts_of(kind, model, batch).num_window_pairs == pairs


def test_sliding_layers_of_gemma3_count_no_more_than_their_window(make_kind):
    kind = make_kind("gemma3")
    model, samples = build(kind), kind.samples()
    work = read_work(model)
    assert work.language.window_width == work.language.attention_width == {3: 32}
    window = work.window_tokens
    lengths = [len(sample.input_ids) for sample in samples]
    assert 0 < window < max(lengths)
    packed = kind.batch(model, [samples])
    found = counts_of(kind, model, packed, window_tokens=window).num_token_window_pairs
    assert found == sum(length * min(length, window) for length in lengths)


def small_ratio(model):
    """As `ratio`, of the small VLM."""
    model.vision.set_attn_implementation("eager")
    model.language.set_attn_implementation("eager")
    ids = torch.tensor([[4] * 4 + [7, 8, 9, 10]] * 3)  # three rows of an image and four words
    labels = torch.where(ids < 9, -100, ids)
    with FlopCounterMode(display=False) as counter:
        small_loss(model, ids, make_images(3), labels).backward()
    counts = WorkCounts(
        num_patches=12,
        num_patch_pairs=3 * 4**2,
        num_image_tokens=12,
        num_tokens=24,
        num_token_pairs=3 * 8**2,
        num_learned=6,
    )
    return model_flops(read_work(model), counts) / counter.get_total_flops()


def test_the_formula_gives_what_a_pass_of_the_small_vlm_takes():
    assert small_ratio(build_model(SMALL, make_facts(), seed=0)) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("late", LATE)
def test_late_layers_of_the_small_vlm_need_no_backward_of_earlier_layers(late):
    model = build_model(SMALL, make_facts(), seed=0)
    train_modules(model, *LATE[late](model))
    assert small_ratio(model) == pytest.approx(1, abs=0.01)

"""Layers that are compiled."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.build import build_model
from pipeline.models.computation import compiling
from pipeline.models.computation.compiling import (
    chosen_layers,
    compile_layers,
    count_compiled,
    describe_compiling,
)
from pipeline.models.computation.model_work import read_work
from pipeline.models.computation.recompute import count_recomputed, recompute_layers
from pipeline.models.computation.torch_versions import torch_version
from pipeline.models.small_vlm import SmallVLM
from pipeline.timing.compile_watch import CompileWatch
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import CompileConfig
from tests.pipeline.models.computation.test_recompute import passes
from tests.pipeline.models.small import CONFIG, make_facts, make_images, make_prompts
from tests.pipeline.models.small import loss_of as small_loss

CPU = torch.device("cpu")
PLACE = RankDevice(device=CPU, precision="fp32", num_compute_threads=1)
BOTH = CompileConfig(backend="eager", towers=("vision", "language"))
LENGTHS = (12, 20, 33, 7)


pytestmark = pytest.mark.usefixtures("_forget_compiled")


def train(model: SmallVLM, lengths: tuple[int, ...], *, num_rows: int = 2) -> list[torch.Tensor]:
    """Losses and gradients of batches of such lengths."""
    found = []
    for length in lengths:
        draw = torch.Generator().manual_seed(length)
        ids = torch.randint(5, 40, (num_rows, length), generator=draw)
        ids[:, :4] = 4
        loss = small_loss(model, ids, make_images(num_rows), ids)
        model.zero_grad()
        loss.backward()
        found += [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
    return found


def make(config: CompileConfig | None = None, *, again: bool = False) -> SmallVLM:
    model = build_model(CONFIG, make_facts(), seed=0).train()
    if again:
        recompute_layers(model)
    if config is not None:
        compile_layers(model, config, CPU)
    assert isinstance(model, SmallVLM)
    return model


@pytest.mark.parametrize("again", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_kind_of_layer_is_compiled_once_for_all_lengths(again):
    model, told = make(BOTH, again=again), []
    assert (count_compiled(model), count_recomputed(model)) == (4, 4 * again)
    with CompileWatch(told.append, num_expected=8, is_main=False):
        found = train(model, LENGTHS)
    assert len(told) == 2, "one of the vision tower, one of the language model"
    assert min(told) > 0
    expected = train(make(), LENGTHS)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_names_and_work_stay_and_a_tower_may_be_left_out():
    plain, compiled = make(), make(CompileConfig(backend="eager"))
    assert count_compiled(compiled) == len(chosen_layers(compiled, CompileConfig())) == 2
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in plain.named_modules()]
    assert read_work(compiled) == read_work(plain)


def test_nothing_is_compiled_for_evaluation_or_generation():
    model, told = make(BOTH).eval(), []
    with CompileWatch(told.append, num_expected=8, is_main=False):
        prompts = make_prompts([[7, *[4] * 4, 8, 9]])
        assert model.generate(prompts, max_new_tokens=5) == make().eval().generate(
            prompts, max_new_tokens=5
        )
        with torch.no_grad():
            small_loss(model.train(), torch.tensor([[7, 8, 9]]), {}, torch.tensor([[7, 8, 9]]))
    assert told == []


def test_a_warning_says_that_it_goes_on_and_on(caplog):
    with CompileWatch(lambda _: None, num_expected=1, is_main=True):
        train(make(BOTH), (12,))
    assert "layers have been compiled more than 1 times" in caplog.text


@pytest.mark.slow
def test_qwen_vision_layers_recompile_per_number_of_sizes_without_borders(
    make_kind,
):
    """Which is why towers of these families are refused: see below."""
    kind = make_kind("qwen2_vl")
    model, samples = kind.build().train(), kind.samples()
    for layer in model.towers()[0]:
        compiling._compile(layer, BOTH)
    numbers = []
    one, two, four = [[samples[0]]], [[samples[1]]], [[samples[n]] for n in (0, 1, 3)]
    for rows in (one, two, four, [[samples[3]]]):
        told: list[int] = []
        with CompileWatch(told.append, num_expected=99, is_main=False):
            loss_of(model, to_device(kind.batch(model, rows), PLACE, model.layout)).backward()
        numbers.append(len(told))
    assert all(numbers[:3])
    assert not numbers[3]


@pytest.mark.parametrize(
    "name",
    [pytest.param("qwen2_vl", marks=pytest.mark.slow), "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"],
)
def test_qwen_vision_layers_compile_once_where_attention_takes_borders(make_kind, name):
    kind = make_kind(name)
    plain, model = kind.build().train(), kind.build().train()
    samples = [sample for sample in kind.samples() if sample.images]
    plain.uses_varlen = model.uses_varlen = True
    compile_layers(model, BOTH, CPU)
    numbers = []
    for chosen in ((0, 1), (2, 0), (2, 1, 0), (1, 1)):
        rows = [[samples[number]] for number in chosen]
        told: list[int] = []
        losses = []
        for each in (plain, model):
            each.zero_grad()
            with CompileWatch(told.append, num_expected=99, is_main=False):
                batch = to_device(kind.batch(each, rows), PLACE, each.layout)
                losses.append(loss_of(each, batch))
                losses[-1].backward()
        assert losses[0] == losses[1]
        numbers.append(len(told))
    assert numbers[0]
    assert not sum(numbers[1:]), numbers


@pytest.mark.skipif(torch_version() >= (2, 14), reason="torch 2.14 compiles these layers")
@pytest.mark.parametrize("name", ["llava", "llava_next", "llava_onevision", "internvl"])
def test_a_layer_that_cannot_be_compiled_is_named_with_the_remedy(make_kind, name):
    """Which is why towers of these families are refused: see below."""
    kind = make_kind(name)
    model = kind.build().train()
    for layer in model.towers()[0]:
        compiling._compile(layer, BOTH)
    with pytest.raises(StageConfigError, match=r"layers \w+ cannot be compiled; leave"):
        passes(kind, model)


def test_a_vision_tower_that_cannot_be_compiled_is_refused_with_the_reason(make_kind):
    model = make_kind("qwen2_5_vl").build().train()
    expected = r"compile.towers is \[vision, language\], .* image by image, .*; leave `vision`"
    with pytest.raises(StageConfigError, match=expected):
        compile_layers(model, BOTH, CPU)
    assert count_compiled(model) == 0


def test_a_language_model_with_delta_nets_is_refused_with_the_reason(make_kind):
    model = make_kind("qwen3_5").build().train()
    with pytest.raises(
        StageConfigError, match=r"\[language\], .* each new number of them .*; leave"
    ):
        compile_layers(model, CompileConfig(backend="eager", towers=("language",)), CPU)
    assert count_compiled(model) == 0


def test_the_log_says_which_layers_are_compiled_and_why_others_are_not(make_kind):
    language = CompileConfig(backend="eager")
    said = "eager compiles 2 layers of the language model when first called"
    assert describe_compiling(make(), language) == (
        f"{said}; the vision tower is not compiled: compile.towers does not name it"
    )
    assert describe_compiling(make(), BOTH).startswith(
        "eager compiles 2 layers of the vision tower and 2 layers of the language model"
    )
    told = describe_compiling(make_kind("qwen2_5_vl").build(), language)
    assert (
        "the vision tower is not compiled: without varlen attention its layers attend image by"
        in told
    )


def test_an_environment_that_switches_compiling_off_is_refused():
    # pytest's own patching would leave the setting hidden from whatever runs after this.
    with (
        torch._dynamo.config.patch(disable=True),
        pytest.raises(StageConfigError, match="TORCHDYNAMO_DISABLE or TORCH_COMPILE_DISABLE"),
    ):
        make(BOTH)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_kernels_of_inductor_compute_the_same_within_rounding(again):
    towers: tuple = ("vision", "language")
    found = train(make(CompileConfig(towers=towers), again=again), LENGTHS)
    for one, other in zip(found, train(make(), LENGTHS), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

"""Layers that are compiled, and zeros that are appended for faster kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional

from pipeline.models.build import build_model
from pipeline.models.computation import aligned_products, compiling
from pipeline.models.computation.aligned_products import align_products, gated_aligned
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
from slurm_jobs.formats.records.heartbeat import begin_steps
from tests.pipeline.models.computation.test_recompute import passes
from tests.pipeline.models.test_small_vlm import CONFIG, make_facts, make_images, make_prompts
from tests.pipeline.models.test_small_vlm import loss_of as small_loss

CPU = torch.device("cpu")
PLACE = RankDevice(device=CPU, precision="fp32", num_compute_threads=1)
BOTH = CompileConfig(backend="eager", towers=("vision", "language"))
LENGTHS = (12, 20, 33, 7)


@pytest.fixture(autouse=True)
def _forget_compiled() -> Iterator[None]:
    """What one test has compiled is no other's."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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


def test_a_compilation_in_the_midst_of_steps_has_the_patience_of_one(last_beat):
    doing = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        doing.append(last_beat()["doing"])
        return graph.forward

    begin_steps()
    with CompileWatch(lambda _: None, num_expected=8, is_main=False):
        double = torch.compile(lambda x: 2 * x, backend=backend)
        double(torch.ones(3))
        doing.append(last_beat()["doing"])
        double(torch.ones(3, 3))
    assert [*doing, last_beat()["doing"]] == ["compilation", "steps", "compilation", "steps"]


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


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
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
@pytest.mark.parametrize("name", ["llava", "llava_next"])
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


class Gated(nn.Module):
    """As the layers of vision towers are written in transformers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(16, width)
        self.up_proj = nn.Linear(16, width)
        self.down_proj = nn.Linear(width, 16)
        self.act_fn = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class WidthsOfProducts(torch.overrides.TorchFunctionMode):
    """Collects the shapes of the weights that are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, ...]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is functional.linear:
            self.found.append(tuple(args[1].shape))
        return func(*args, **(kwargs or {}))


def test_zeros_change_neither_values_nor_gradients():
    torch.manual_seed(0)
    plain = Gated(42).double()
    padded, x = copy.deepcopy(plain), torch.randn(5, 16, dtype=torch.float64)
    expected = plain(x)
    with WidthsOfProducts() as widths:
        output = gated_aligned(padded, x)
    assert widths.found == [(48, 16), (48, 16), (16, 48)]
    torch.testing.assert_close(output, expected)
    for each in (expected, output):
        each.square().sum().backward()
    for (name, was), now in zip(plain.named_parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(now.grad, was.grad, msg=name)


def test_layers_are_called_as_before_where_nothing_is_gained():
    wide, odd = Gated(48), Gated(42)
    tower = nn.ModuleList([wide, odd])
    align_products(tower)
    assert type(wide) is Gated
    assert (type(odd).__name__, isinstance(odd, Gated)) == ("Gated", True)
    with WidthsOfProducts() as widths:
        odd(torch.randn(5, 16))  # a CPU has no such kernels
    assert widths.found == [(42, 16), (42, 16), (16, 42)]
    assert list(odd.state_dict()) == list(Gated(42).state_dict())


@pytest.mark.parametrize("gains", [False, True])
def test_all_layers_are_compiled_as_one(monkeypatch, gains):
    monkeypatch.setattr(aligned_products, "_gains", lambda *_: gains)
    tower = nn.ModuleList([Gated(42) for _ in range(3)])
    align_products(tower)
    torch._dynamo.reset()
    counts = CompileCounter()
    for layer in tower:
        torch.compile(layer, backend=counts, fullgraph=True)(torch.randn(5, 16))
    assert counts.frame_count == 1


def test_copies_of_aligned_layers_have_weights_of_their_own():
    tower = nn.ModuleList([Gated(42)])
    align_products(tower)
    again = copy.deepcopy(tower)
    assert again[0].gate_proj.weight is not tower[0].gate_proj.weight
    assert type(again[0]) is type(tower[0])

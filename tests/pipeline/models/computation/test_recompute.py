"""Layers that are computed again: the same bits and names for less memory, in training alone."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from pipeline.models.build import build_model
from pipeline.models.computation import recompute
from pipeline.models.computation.model_work import read_work
from pipeline.models.computation.recompute import count_recomputed, recompute_layers
from pipeline.models.finetuning.adapters import add_adapters
from pipeline.models.finetuning.quantized_linear import quantize_model
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.model_parts import (
    AdaptersConfig,
    LanguageConfig,
    ModelConfig,
    QuantizeConfig,
    VisionConfig,
)
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import CPU
from tests.pipeline.models.small import CONFIG, make_facts, make_images, make_prompts
from tests.pipeline.models.small import loss_of as small_loss

NUM_LAYERS = 12


def passes(kind: Kind, model: VisionLanguageModel) -> dict[str, torch.Tensor]:
    """The loss and the gradients by name, of a batch with pictures and dropout of one seed."""
    batch = kind.batch(model, [[sample] for sample in kind.samples()])
    torch.manual_seed(1)
    loss = loss_of(model, to_device(batch, CPU, model.layout))
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **gradients}


def adapted(kind: Kind, *, quantized: bool = False, dropout: float = 0.0) -> VisionLanguageModel:
    model = kind.build()
    if quantized:
        quantize_model(model, QuantizeConfig(), CPU.device)
    add_adapters(model, AdaptersConfig(rank=4, alpha=8.0, dropout=dropout), seed=0)
    return model.train()


def assert_the_same_bits(kind: Kind, make: Callable[[], VisionLanguageModel]) -> None:
    once, again = make(), make()
    recompute_layers(again)
    expected, found = passes(kind, once), passes(kind, again)
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def count_runs(layer: nn.Module) -> list[str]:
    """What will be told of each run of the layer's inside."""
    told: list[str] = []
    inside = next(module for name, module in layer.named_modules() if name.endswith("mlp"))
    # Before it: the second run ends at the last tensor that the backward pass needs.
    inside.register_forward_pre_hook(lambda *_: told.append("run"))
    return told


def test_losses_and_gradients_are_the_same_bits_and_names(kind):
    assert_the_same_bits(kind, lambda: kind.build().train())
    plain, again = kind.build(), kind.build()
    recompute_layers(again)
    assert count_recomputed(again) == sum(map(len, again.towers()))
    assert count_recomputed(plain) == 0
    assert list(again.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in again.named_modules()] == [n for n, _ in plain.named_modules()]
    assert read_work(again) == read_work(plain)


def test_generators_are_kept_for_layers_with_dropout_alone(make_kind, monkeypatch):
    kind, kept = make_kind("smolvlm"), list[bool]()

    def noted(*args: Any, **options: Any) -> Any:
        kept.append(options["preserve_rng_state"])
        return checkpoint(*args, **options)

    monkeypatch.setattr(recompute, "checkpoint", noted)
    for dropout in (0.0, 0.1):
        model = adapted(kind, dropout=dropout)
        recompute_layers(model)
        passes(kind, model)
        vision, language = (len(tower) for tower in model.towers())
        assert kept == [False] * vision + [dropout > 0] * language
        kept.clear()
    attends = kind.build().towers()[1][0]
    assert not recompute.may_draw(attends)
    attends.self_attn.attention_dropout = 0.1
    assert recompute.may_draw(attends)


def test_dropout_leaves_out_the_same_the_second_time(make_kind):
    kind = make_kind("smolvlm")
    assert_the_same_bits(kind, lambda: adapted(kind, dropout=0.5))
    without, left_out = (passes(kind, adapted(kind, dropout=share)) for share in (0.0, 0.5))
    assert any(not torch.equal(without[name], left_out[name]) for name in without)


def test_layers_in_4_bits_give_the_same_bits(make_kind):
    kind = make_kind("qwen2_5_vl")
    assert_the_same_bits(kind, lambda: adapted(kind, quantized=True, dropout=0.1))


def test_under_autocast_the_second_time_computes_in_the_same_precision():
    ids = torch.tensor([[4] * 4 + [7, 8, 9, 10]])
    found = []
    for is_again in (False, True):
        model = build_model(CONFIG, make_facts(), seed=0).train()
        if is_again:
            recompute_layers(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = small_loss(model, ids, make_images(1), ids)
        loss.backward()
        found.append([loss, *(p.grad for p in model.parameters())])
    assert all(torch.equal(once, again) for once, again in zip(*found, strict=True))


def test_layers_run_twice_in_training_and_once_without_gradients():
    model = build_model(CONFIG, make_facts(), seed=0)
    recompute_layers(model)
    ids = torch.tensor([[4] * 4 + [7, 8, 9, 10]])
    runs = count_runs(model.towers()[1][0])
    small_loss(model.train(), ids, make_images(1), ids).backward()
    assert len(runs) == 2
    with torch.no_grad():
        small_loss(model, ids, make_images(1), ids)
    small_loss(model.eval(), ids, make_images(1), ids).backward()
    assert len(runs) == 4


def test_generation_keeps_its_cache():
    plain, again = (build_model(CONFIG, make_facts(), seed=0).eval() for _ in range(2))
    recompute_layers(again)
    widths: list[int] = []
    again.towers()[1][0].register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
    prompts = make_prompts([[7, *[4] * 4, 8, 9]])
    answers = again.generate(prompts, max_new_tokens=5)
    assert answers == plain.generate(prompts, max_new_tokens=5)
    assert widths[0] == 7
    assert set(widths[1:]) == {1}  # as many as torch's random weights answer


class PeakOfMemory(TorchDispatchMode):
    """How many bytes of what was made since live at once, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self._take_note(tensor.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, sum(self._live.values()))
        return found

    def _take_note(self, storage: torch.UntypedStorage) -> None:
        key = storage.data_ptr()
        if key not in self._live:
            self._live[key] = storage.nbytes()
            weakref.finalize(storage, self._live.pop, key, None)


def peak_of_training(*, is_again: bool) -> int:
    """Of forward and backward, bytes, without weights and their gradients."""
    sizes = {"hidden_size": 64, "num_heads": 2}
    config = ModelConfig(
        vision=VisionConfig(num_layers=1, **sizes),
        language=LanguageConfig(num_layers=NUM_LAYERS, **sizes),
    )
    model = build_model(config, make_facts(), seed=0).train()
    if is_again:
        recompute_layers(model)
    ids = torch.randint(5, 40, (1, 512), generator=torch.Generator().manual_seed(0))
    with PeakOfMemory() as memory:
        loss = small_loss(model, ids, {}, ids)
        loss.backward()
    return memory.peak_bytes - sum(p.numel() * p.element_size() for p in model.parameters())


def test_the_peak_of_memory_is_several_times_lower():
    once, again = (peak_of_training(is_again=is_again) for is_again in (False, True))
    assert again < once / 4

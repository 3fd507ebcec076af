"""A chain of thought in one forward pass: all levels of all samples, equal to one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from pipeline.data.batch import Batch, collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.batches.learned_targets import LevelRules
from pipeline.data.disk_format.sample_members import Sample
from pipeline.models.build import build_model
from pipeline.models.finetuning.trained_parts import choose, parts_of
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.training_data.batches import losses_of, to_device
from tests.pipeline.models.attention_kernels.test_packed_rows import RULE, make_samples
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import CPU
from tests.pipeline.models.small import CONFIG, make_facts

NAMES = ("organ", "finding", "report")
NUM_CLASSES = 4


def class_of(answer: tuple[int, ...]) -> int:
    return sum(answer) % NUM_CLASSES


TEXT = LevelRules(names=NAMES, readers={})
MIXED = LevelRules(names=NAMES, readers={0: class_of})


def chained(sample: Sample, number: int) -> Sample:
    """The sample with three answers of different lengths behind it."""
    draw = np.random.default_rng(number)
    ids, labels = [sample.input_ids], [np.full_like(sample.labels, -100)]
    for level in range(3):
        asked, said = (draw.integers(5, 40, size) for size in (2, 1 + (number + level) % 3))
        ids += [asked.astype(np.int32), said.astype(np.int32)]
        labels += [np.full(2, -100, np.int32), said.astype(np.int32)]
    return Sample(
        key=sample.key,
        input_ids=np.concatenate(ids),
        labels=np.concatenate(labels),
        images=sample.images,
        meta=sample.meta,
    )


@pytest.fixture(params=["small_vlm", "smolvlm", "qwen2_5_vl"])
def setting(request, make_kind: Callable[[str], Kind]):
    """A model with heads, its samples, and a maker of batches."""
    if request.param == "small_vlm":
        model, samples = build_model(CONFIG, make_facts(), seed=3), make_samples()
        rule, info = RULE, make_facts().info
    else:
        kind = make_kind(request.param)
        model, samples = kind.build(), kind.samples()
        rule, info = kind.dataset.rule, kind.facts.info
    model.add_heads({0: NUM_CLASSES})
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.heads.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw))

    def make_batch(rows: list[list[Sample]], rules: LevelRules) -> Batch:
        needs = model.layout.needs
        needs = type(needs)(
            make_positions=needs.make_positions,
            pictures=needs.pictures,
            levels=rules,
        )
        buffers = BufferPool(pin_memory=False)
        return collate(
            rows,
            rule=rule,
            needs=needs,
            image_token_id=info.image_token_id,
            pad_token_id=info.pad_token_id,
            epoch=0,
            buffers=buffers,
        )

    return model, [chained(s, n) for n, s in enumerate(samples)], make_batch


def losses(model: VisionLanguageModel, batch: Batch) -> torch.Tensor:
    return losses_of(model, to_device(batch, CPU, model.layout))


def cut(sample: Sample, level: int) -> Sample:
    """The sample up to the end of a level, of which alone the answer is learned."""
    learned = np.flatnonzero(sample.labels != -100)
    runs = np.split(learned, np.flatnonzero(np.diff(learned) != 1) + 1)
    end = runs[level][-1] + 1
    labels = np.full(end, -100, np.int32)
    labels[runs[level]] = sample.labels[runs[level]]
    return Sample(
        key=sample.key,
        input_ids=sample.input_ids[:end],
        labels=labels,
        images=sample.images,
        meta=sample.meta,
    )


@pytest.mark.parametrize(
    ("rules", "is_packed"),
    [
        pytest.param(TEXT, False, id="text"),
        pytest.param(TEXT, True, id="text-packed", marks=pytest.mark.slow),
        pytest.param(MIXED, False, id="classes first", marks=pytest.mark.slow),
        pytest.param(MIXED, True, id="classes first-packed"),
    ],
)
def test_one_pass_over_a_batch_gives_the_losses_of_each_sample_alone(setting, rules, is_packed):
    model, samples, make_batch = setting
    rows = [samples[:2], samples[2:]] if is_packed else [[sample] for sample in samples]
    together = losses(model, make_batch(rows, rules))
    together.sum().backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    expected = torch.zeros(3)
    for sample in samples:
        for level in range(3):
            only = cut(sample, level)
            own = {0: class_of} if level in rules.readers else {}
            batch = make_batch([[only]], LevelRules(names=("it",), readers=own))
            loss = losses(model, batch)
            loss[0].backward()
            expected[level] += loss[0].detach()
    torch.testing.assert_close(together.detach(), expected, atol=2e-3, rtol=1e-5)
    for name, parameter in model.named_parameters():
        if name in gradients and parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=5e-4, rtol=5e-3)


def test_level_does_not_see_what_later_levels_say(setting):
    model, samples, make_batch = setting
    before = losses(model, make_batch([[samples[0]]], MIXED)).detach()
    learned = np.flatnonzero(samples[0].labels != -100)
    ids = samples[0].input_ids.copy()
    ids[learned[-1]] = ids[learned[-1]] % 30 + 6
    labels = samples[0].labels.copy()
    labels[learned[-1]] = ids[learned[-1]]
    other = Sample(
        key="x", input_ids=ids, labels=labels, images=samples[0].images, meta=samples[0].meta
    )
    after = losses(model, make_batch([[other]], MIXED)).detach()
    assert torch.equal(before[:2], after[:2])
    assert before[2] != after[2]


def test_counts_are_of_tokens_of_text_and_of_answers_predicted_as_classes(setting):
    model, samples, make_batch = setting
    text, mixed = (make_batch([[s] for s in samples], rules) for rules in (TEXT, MIXED))
    assert (
        sum(text.learned.num_by_group) == text.num_supervised_tokens == mixed.num_supervised_tokens
    )
    assert mixed.learned.num_by_group == (len(samples), *text.learned.num_by_group[1:])
    heads = choose(parts_of(model), ["heads"], "train")
    assert heads == {"heads.0.weight", "heads.0.bias"}

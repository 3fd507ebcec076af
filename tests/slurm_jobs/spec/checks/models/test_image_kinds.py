"""Kinds of images that data sets, processors and models must share."""

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.models.image_specs import SPEC, models, spec
from tests.slurm_jobs.spec.conftest import Check

__all__ = ["models"]

SMALL = "{language: {hidden_size: 64}}"
HF = "{type: hugging_face, path: qwen3_vl}"


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("override", ["p.config.processor=smolvlm", "t.config.model.path=llava"])
def test_a_value_from_the_command_line_is_reported_at_the_override(
    check: Check, override: str
) -> None:
    text = spec("qwen3_vl", HF)
    assert check(text) == []
    (line,) = check(text, overrides=(f"stages.{override}",))
    assert line.startswith(f"--set stages.{override}: ")


@pytest.mark.usefixtures("models")
def test_a_part_or_data_set_from_the_command_line_names_the_override(
    check: Check,
) -> None:
    parts = spec("{images: siglip_vision_model, text: qwen2}", SMALL)
    override = "stages.p.config.processor.images=smolvlm"
    found = [line for line in check(parts, overrides=(override,)) if "takes images" in line]
    assert [line.partition(": ")[0] for line in found] == [f"--set {override}"]

    own = "  p2:\n    run: preprocess\n    config: {manifest: rows.csv, processor: smolvlm}\n"
    own += "  c2: {run: consolidate, after: p2}\n  t:\n"
    phases = "phases: [{name: a, num_steps: 1}, {name: b, num_steps: 1}]"
    text = spec("qwen3_vl", HF).replace("  t:\n", own).replace("after: c\n", "after: [c, c2]\n")
    for given, key in (("num_steps: 1", "dataset"), (phases, "phases.1.dataset")):
        plain = text.replace(
            "      num_steps: 1", f"      dataset: ${{c.output_dir}}\n      {given}"
        )
        assert check(plain) == []
        override = f"stages.t.config.{key}=${{c2.output_dir}}"
        (line,) = check(plain, overrides=(override,))
        assert line.startswith(f"--set {override}: ")


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("processor", "model"),
    [
        ("llava", SMALL),
        ("{images: siglip_vision_model, text: qwen2}", SMALL),
        ("unknown", HF),
        ("smolvlm", "{type: hugging_face, name: Qwen/Qwen3-VL-2B-Instruct}"),
        ("smolvlm", "{type: hugging_face, path: smolvlm}"),
    ],
)
def test_what_may_go_together_is_left_to_the_job(check: Check, processor: str, model: str) -> None:
    lines = check(spec(processor, model))
    assert [line for line in lines if "takes images" in line] == []


@pytest.mark.usefixtures("models")
def test_each_data_set_of_the_spec_is_compared_and_no_other(check: Check) -> None:
    phases = "phases: [{name: a, num_steps: 1, dataset: .}, {name: b, num_steps: 1}]"
    for length, num_problems in {
        "num_steps: 1\n      dataset: .": 0,
        "num_steps: 1\n      dataset: ${c.output_dir}": 1,
        phases: 1,
        phases.replace("num_steps: 1}]", "num_steps: 1, dataset: .}]"): 0,
    }.items():
        text = spec("smolvlm", HF).replace("num_steps: 1", length, 1)
        assert len(check(text)) == num_problems


def test_a_byte_order_mark_hides_no_setting_of_a_processor(check: Check, models: Path) -> None:
    file = models / "smolvlm" / "processor_config.json"
    spec = SPEC.replace("PROCESSOR", "smolvlm").replace("MODEL", SMALL)
    expected = check(spec)
    assert expected
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert check(spec) == expected

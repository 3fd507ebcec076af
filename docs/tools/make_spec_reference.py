"""Writes what is made from the models: docs/reference/spec.md, and templates/schema/.

python docs/tools/make_spec_reference.py           write
python docs/tools/make_spec_reference.py --check   exit with 1 if a file is out of date
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import dump_json
from slurm_jobs.base.written_values import trap
from slurm_jobs.commands.spec_reading.json_schema import PLACE, profile_schema, spec_schema

ROOT = Path(__file__).resolve().parents[2]
MARK = (
    "<!-- From here on made by docs/tools/make_spec_reference.py; change the models instead. -->\n"
)
SECTIONS = {
    "RunSpec": "The spec",
    "Stage": "A stage",
    "Array": "`array`",
    "Resources": "`resources`",
    "OnResume": "`on_resume`",
    "DownloadConfig": "`config` of `run: download`",
    "HubRepository": "An entry of `models` or `datasets` of `run: download`",
    "PreprocessConfig": "`config` of `run: preprocess`",
    "ManifestEntry": "An entry of `manifest` of `run: preprocess`",
    "ComposedProcessor": "`processor` of `run: preprocess`",
    "ImagePixels": "`image_pixels` of `run: preprocess`",
    "Columns": "`columns` of `run: preprocess`",
    "HeldOutConfig": "`held_out` of `run: preprocess`",
    "ConsolidateConfig": "`config` of `run: consolidate`",
    "Proportion": "An entry of `mixture` of `run: consolidate`",
    "TrainConfig": "`config` of `run: train`",
    "ModelConfig": "`model` of `run: train`",
    "VisionConfig": "`model.vision` of `run: train`",
    "LanguageConfig": "`model.language` of `run: train`",
    "AccelerateConfig": "`accelerate` of `run: train`",
    "ShardingConfig": "`sharding` of `run: train`",
    "ScalerConfig": "`scaler` of `run: train`",
    "AdaptersConfig": "`adapters` of `run: train`",
    "QuantizeConfig": "`quantize` of `run: train`",
    "CompileConfig": "`compile` of `run: train`",
    "PhaseConfig": "An entry of `phases` of `run: train`",
    "LevelConfig": "An entry of `levels` of `run: train`",
    "BatchingConfig": "`batching` of `run: train`",
    "StreamConfig": "`stream` of `run: train`",
    "AugmentConfig": "`augment` of `run: train`",
    "OptimizerConfig": "`optimizer` of `run: train`",
    "ScheduleConfig": "`schedule` of `run: train`",
    "CheckpointConfig": "`checkpoint` of `run: train`",
    "EvaluateConfig": "`evaluate` of `run: train`",
    "StagingConfig": "`staging` of `run: train`",
    "TrackersConfig": "`trackers` of `run: train`",
    "SamplerConfig": "`sampler` of `run: train`",
    "ProfileConfig": "`profile` of `run: train`",
    "ReportConfig": "`config` of `run: report`",
    "ProbeConfig": "`config` of `run: probe`",
    "ClusterProfile": "The cluster profile",
    "Price": "`price` of the cluster profile",
}


def made_files() -> dict[Path, str]:
    """Text of every file that is made, by its path."""
    page = ROOT / "docs/reference/spec.md"
    intro = page.read_text(encoding="utf-8").partition(MARK)[0]
    schemas = ROOT / "templates" / "schema"
    return {
        page: intro + MARK + reference(),
        schemas / "spec.schema.json": dump_json(spec_schema()),
        schemas / "profile.schema.json": dump_json(profile_schema()),
    }


def reference() -> str:
    """All sections."""
    spec, profile = spec_schema(), profile_schema()
    models = {
        "RunSpec": spec,
        **spec["$defs"],
        "ClusterProfile": profile,
        **profile["$defs"],
    }
    missing = set(models) ^ set(SECTIONS)
    assert not missing, f"SECTIONS does not match the models: {missing}"
    return "".join(section(SECTIONS[name], models[name], models) for name in SECTIONS)


def section(title: str, model: dict[str, Any], models: dict[str, dict[str, Any]]) -> str:
    """A heading, the model's own words, and a table of its keys."""
    required = model.get("required", [])
    lines = [f"\n## {title}\n", f"{model['description']}\n"]
    lines += ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    for key, widened in model["properties"].items():
        value = without_place(widened)
        default = "required" if key in required else default_text(value)
        # A description that repeats the inner model's own is left out of the schema.
        inner = models.get(value.get("$ref", "").rpartition("/")[2], {})
        meaning = value.get("description") or inner["description"]
        cells = (f"`{key}`", takes(value), default, meaning)
        lines.append("| " + " | ".join(cell_text(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def cell_text(text: str) -> str:
    """Text that cannot leave its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def default_text(value: dict[str, Any]) -> str:
    """A default as YAML has it; of a model, that it has its own."""
    default = value.get("default")
    if default is None:
        return "-"
    return "see there" if "$ref" in value else f"`{json.dumps(default, ensure_ascii=False)}`"


def without_place(value: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value before `${...}` was allowed in its stead."""
    match value.get("anyOf"):
        case [strict, place] if place == PLACE:
            return {**{key: told for key, told in value.items() if key != "anyOf"}, **strict}
    return value


def takes(value: dict[str, Any]) -> str:
    """What a key takes, in words."""
    value = without_place(value)
    if "$ref" in value:
        return "keys of " + link(value["$ref"].rpartition("/")[2])
    if "anyOf" in value:
        kinds = [takes(v) for v in value["anyOf"] if v.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return ", ".join(
            f'`"{word}"`' if trap(str(word)) else f"`{word}`" for word in value["enum"]
        )
    if "const" in value:
        return f"`{value['const']}`"
    kind = value.get("type", "")
    if kind == "array":
        return f"list of {takes(value['items'])}"
    if kind == "object":
        inner = value.get("additionalProperties") or {}
        inner = next(iter(value.get("patternProperties", {}).values()), inner)
        is_model = isinstance(inner, dict) and inner
        return f"names, each with {takes(inner)}" if is_model else "keys and values"
    words = {"integer": "whole number", "boolean": "true or false", "string": "text"}
    word: str = words.get(kind, kind)
    return word + bounds(value)


def bounds(value: dict[str, Any]) -> str:
    """` from 1 to 100`, or ` from 0, below 1`, as far as there are bounds."""
    text = ""
    if "minimum" in value:
        text += f" from {value['minimum']:,}"
    if "exclusiveMinimum" in value:
        text += f" above {value['exclusiveMinimum']:g}"
    if "maximum" in value:
        text += f" to {value['maximum']:,}".replace(".0", "")
    if "exclusiveMaximum" in value:
        text += f"{',' if text else ''} below {value['exclusiveMaximum']:g}"
    return text


def link(model: str) -> str:
    """A link to a section of this page, by GitHub's rule for anchors."""
    title = SECTIONS[model]
    kept = (c for c in title.lower() if c.isalnum() or c in " -_")
    return f"[{title}](#{''.join(kept).replace(' ', '-')})"


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    stale = [
        path
        for path, text in made_files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made_files()[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is out of date' if is_check else 'written'}")
    sys.exit(1 if stale and is_check else 0)


if __name__ == "__main__":
    main()

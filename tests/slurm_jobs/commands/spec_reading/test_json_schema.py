"""JSON Schemas of specs and profiles: what passes, what fails, and that every key is documented."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from slurm_jobs.commands.spec_reading.json_schema import profile_schema, spec_schema

ROOT = Path(__file__).resolve().parents[4]
SPECS = sorted((ROOT / "configs").glob("*.yaml"))
PROFILES = sorted((ROOT / "configs" / "clusters").glob("*.yaml"))
SPEC_SCHEMA, PROFILE_SCHEMA = spec_schema(), profile_schema()
SPEC = jsonschema.Draft202012Validator(SPEC_SCHEMA)
PROFILE = jsonschema.Draft202012Validator(PROFILE_SCHEMA)
GOOD: dict[str, Any] = {
    "name": "a",
    "stages": {
        "prep": {
            "run": "preprocess",
            "array": {"num_slices": 4},
            "resources": {"gpus_per_node": 1, "gpu": "a100", "slurm": {"qos": "x"}},
            "config": {"manifest": "m", "processor": "p"},
        },
        "train": {"run": "train", "config": {"device": "cpu"}},
        "own": {"run": "my.module:f", "after": ["prep"], "config": {"any": {"thing": 1}}},
        "shell": {"shell": "make", "after": {"own": "afterany"}},
    },
}


def changed(where: str, value: object) -> dict[str, Any]:
    """Return the good spec with another value, or with none, at a place."""
    spec = copy.deepcopy(GOOD)
    *path, last = where.split(".")
    holder = spec
    for step in path:
        holder = holder.setdefault(step, {})
    holder[last] = value
    if value is None:
        del holder[last]
    return spec


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_schemas_are_schemas() -> None:
    SPEC.check_schema(SPEC_SCHEMA)
    PROFILE.check_schema(PROFILE_SCHEMA)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_shipped_specs_pass(path: Path) -> None:
    SPEC.validate(load(path))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_shipped_profiles_pass(path: Path) -> None:
    PROFILE.validate(load(path))


def test_a_valid_spec_passes() -> None:
    SPEC.validate(GOOD)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("prep.resources", "${matrix.at}"),
        ("prep.resources.slurm", "${matrix.at}"),
        ("prep.config.processor", "${matrix.at}"),
        ("prep.config.max_tokens", "${matrix.at}"),
        ("prep.array", "${matrix.at}"),
        ("train.config.optimizer", "${matrix.at}"),
        ("train.config.compile.towers", "${matrix.at}"),
        ("train.config.phases", ["${matrix.at}"]),
    ],
)
def test_any_value_of_a_stage_may_be_a_placeholder(where: str, value: object) -> None:
    SPEC.validate(changed(f"stages.{where}", value))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("stags", {}),
        ("name", "1 a"),
        ("limit", 0),
        ("stages", {}),
        ("stages.prep.rnu", "x"),
        ("stages.prep.run", "preproces"),
        ("stages.prep.shell", "both"),
        ("stages.own.run", None),
        ("stages.shell.shell", ""),
        ("stages.prep.after", 3),
        ("stages.prep.after", {"own": "afterwards"}),
        ("stages.prep.array", {}),
        ("stages.prep.array.num_slices", "4"),
        ("stages.prep.retries", -1),
        ("stages.prep.resources.nodes", 1.5),
        ("stages.prep.resources.gpu", "a 100"),
        ("stages.prep.resources.slurm.time", 3),
        ("stages.prep.resources.slurm.ntasks_per_node", 3),
        ("stages.prep.resources.slurm.qos", ["x"]),
        ("stages.prep.environment", {"A-B": "x"}),
        ("stages.prep.environment", {"A": 1}),
        ("stages.prep.config", {"manifest": "m"}),
        ("stages.prep.config.max_tokns", 3),
        ("stages.prep.config.too_long", "dropp"),
        ("stages.Bad name", {"shell": "x"}),
    ],
)
def test_typical_mistakes_fail(where: str, value: object) -> None:
    assert not SPEC.is_valid(changed(where, value))


@pytest.mark.parametrize(
    "profile",
    [
        {"scheduler": "pbs"},
        {"slrum": {}},
        {"slurm": {"time": 1}},
        {"max_cpus": 0},
        {"setup": "x"},
    ],
)
def test_typical_mistakes_in_a_profile_fail(profile: dict[str, Any]) -> None:
    assert not PROFILE.is_valid(profile)


def test_every_key_is_documented() -> None:
    models = {"spec": SPEC_SCHEMA, "profile": PROFILE_SCHEMA, **SPEC_SCHEMA["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, model in models.items()
        for key, value in model["properties"].items()
        if not value.get("description") and "$ref" not in value.get("anyOf", [value])[0]
    ]
    assert bare == []


def test_the_shipped_files_and_the_reference_are_up_to_date() -> None:
    script = ROOT / "docs/tools/make_spec_reference.py"
    result = subprocess.run(
        [sys.executable, str(script), "--check"], cwd=ROOT, capture_output=True, text=True,
        check=False, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_reference_says_bounds_that_are_excluded() -> None:
    page = (ROOT / "docs/reference/spec.md").read_text(encoding="utf-8")
    assert "| `beta1` | number from 0, below 1 | `0.9` |" in page
    assert "| `learning_rate` | number above 0 | `0.0001` |" in page

"""The JSON Schema of specs and cluster profiles, for editors; made from the models. PURE."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.spec.model import BUILTIN_STAGES, RunSpec
from slurm_jobs.spec.stage_configs import config_class

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def spec_schema() -> dict[str, Any]:
    """Schema of a spec; a built-in stage's `config` is checked against that stage's own."""
    _, schema = models_json_schema([(RunSpec, "validation")])
    definitions = schema["$defs"]
    spec = definitions.pop("RunSpec")
    conditions = []
    for builtin in BUILTIN_STAGES:
        config = TypeAdapter(config_class(builtin)).json_schema()
        definitions.update(config.pop("$defs", {}))
        name = f"{builtin.capitalize()}Config"
        definitions[name] = config
        conditions.append(
            {
                "if": {"properties": {"run": {"const": builtin}}, "required": ["run"]},
                "then": {"properties": {"config": {"$ref": f"#/$defs/{name}"}}},
            }
        )
    definitions["Stage"]["allOf"] = conditions
    return {"$schema": DIALECT, "title": "slurm-jobs spec", **spec, "$defs": definitions}


def profile_schema() -> dict[str, Any]:
    """Schema of a cluster profile."""
    return {"$schema": DIALECT, "title": "slurm-jobs cluster profile"} | (
        ClusterProfile.model_json_schema()
    )

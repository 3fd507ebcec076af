"""JSON Schema of specs and cluster profiles, for editors; generated from the models. PURE."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.value_types import BUILTIN_STAGES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLACE = {"type": "string", "pattern": r"^\$\{[^{}]+\}$"}
"""`${matrix.AXIS}`, which may replace any whole value of a stage."""
_KINDS = ("integer", "number", "boolean", "array", "object")
_TOLD = ("description", "default", "title", "examples")
"""Keys that describe a value, without any rule."""


class _WithDocstrings(GenerateJsonSchema):
    """Describes each field by its attribute docstring.

    pydantic's `use_attribute_docstrings` parses the source of every class whenever a spec is
    checked, which takes 0.1 s; only this schema needs it.
    """

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return _described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return _described(super().dataclass_schema(schema), schema["cls"])


def _described(schema: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    """Add the docstrings of the fields, those of a base that is a dataclass included."""
    for each in (cls, *filter(dataclasses.is_dataclass, cls.__mro__[1:])):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(ast.Constant(str(docstring))),
                ):
                    if name in schema["properties"]:
                        schema["properties"][name]["description"] = inspect.cleandoc(docstring)
    return schema


def spec_schema() -> dict[str, Any]:
    """Return the schema of a spec; a built-in stage's `config` has that stage's schema."""
    _, schema = models_json_schema([(RunSpec, "validation")], schema_generator=_WithDocstrings)
    definitions = schema["$defs"]
    spec = definitions.pop("RunSpec")
    conditions = []
    for builtin in BUILTIN_STAGES:
        config = TypeAdapter(config_class(builtin)).json_schema(schema_generator=_WithDocstrings)
        definitions.update(config.pop("$defs", {}))
        name = f"{builtin.capitalize()}Config"
        definitions[name] = config
        conditions.append(
            {
                "if": {"properties": {"run": {"const": builtin}}, "required": ["run"]},
                "then": {
                    "properties": {"config": {"$ref": f"#/$defs/{name}"}},
                    "required": ["config"] if "required" in config else [],
                },
            }
        )
    definitions = {name: _with_places_within(value) for name, value in definitions.items()}
    definitions["Stage"]["allOf"] = conditions
    return _finished("slurm-jobs spec", {**spec, "$defs": definitions})


def _with_places(schema: Any) -> Any:
    """Allow a `${...}` for values that are no free text: its replacement is unknown."""
    if isinstance(schema, list):
        return [_with_places(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = _with_places_within(schema)
    is_strict = {"enum", "pattern", "$ref"} & set(schema) or schema.get("type") in _KINDS
    if not is_strict:
        return inner
    documented = {key: value for key, value in inner.items() if key in _TOLD}
    strict = {key: value for key, value in inner.items() if key not in _TOLD}
    return {**documented, "anyOf": [strict, PLACE]}


def _with_places_within(schema: dict[str, Any]) -> dict[str, Any]:
    """Do the same inside a mapping or a list, but not for itself."""
    named = {"properties", "patternProperties"}
    return {
        key: {name: _with_places(each) for name, each in value.items()}
        if key in named
        else value
        if key in {*_TOLD, "required", "propertyNames", "enum", "pattern", "$ref"}
        else _with_places(value)
        for key, value in schema.items()
    }


def profile_schema() -> dict[str, Any]:
    """Return the schema of a cluster profile."""
    return _finished(
        "slurm-jobs cluster profile",
        ClusterProfile.model_json_schema(schema_generator=_WithDocstrings),
    )


def _finished(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    tidy: dict[str, Any] = _tidy(schema)
    return {"$schema": DIALECT, "title": title, **tidy}


def _tidy(schema: Any) -> Any:
    """Remove titles that only repeat names; refuse keys that match no pattern."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "$defs", "patternProperties"}:
            tidy[key] = {name: _tidy(inner) for name, inner in value.items()}
        elif key != "title":
            tidy[key] = value if key == "default" else _tidy(value)
    if "patternProperties" in tidy:
        tidy.setdefault("additionalProperties", False)
    return tidy

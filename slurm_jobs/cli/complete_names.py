"""Names on the disk that a user may be typing: runs, specs, stages, keys of a spec.

Quick and silent: no scheduler is asked, nothing heavy is loaded, at most some dozens of files are
looked at. What cannot be read has no names. A name that is not printable (a newline, an escape
sequence, a sign that turns the writing round) is never offered, nor one that reads as an option.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import PathExpansionError
from slurm_jobs.common.path_expansion import expand_path

MAX_RUNS = 50
"""The newest; a longer list helps nobody, and each is one more file to look for."""
_MAX_ENTRIES = 5000
"""Of a folder; whoever has more types the name."""
_MAX_BYTES = 2_000_000
"""Of a spec that is read for its stages."""
_MAX_DEPTH = 100
"""Of nodes within nodes; a spec has some ten."""
_SPEC_SUFFIXES = (".yaml", ".yml")
_STAMP = re.compile(r"-(\d{8}-\d{6})-[0-9a-f]{4}$")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_STAGE_KEY = 2
"""Parts of a key that end before those of a stage: `stages.train.`."""


def _names(folder: Path) -> Iterator[tuple[str, bool]]:
    """Name, and whether it is a folder, of what may be offered of a folder's entries."""
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= _MAX_ENTRIES:
                    return
                if entry.name.isprintable() and entry.name[0] not in "-.":
                    yield entry.name, entry.is_dir()
    except OSError:
        return


def runs_dir() -> Path:
    """As `run.find` has it, which loads more than a TAB may take."""
    given = os.environ.get("SLURM_JOBS_RUNS_DIR", "runs")
    try:
        return Path(expand_path(given))
    except PathExpansionError:
        return Path(given)


def run_names(prefix: str) -> list[str]:
    """Ids of the newest runs that begin so, the newest first."""
    folder = runs_dir()
    stamped = [
        (stamp[1] if (stamp := _STAMP.search(name)) else "", name)
        for name, is_dir in _names(folder)
        if is_dir and name.startswith(prefix)
    ]
    newest = [name for _, name in sorted(stamped, reverse=True)[:MAX_RUNS]]
    return [name for name in newest if _is_run(folder / name)]


def _is_run(folder: Path) -> bool:
    try:
        return (folder / "run.json").is_file()
    except OSError:
        return False


def path_names(prefix: str, *, suffixes: tuple[str, ...] = _SPEC_SUFFIXES) -> list[str]:
    """Files with such an ending, and folders with a slash, whose path begins so."""
    above, slash, start = prefix.rpartition("/")
    found = sorted(_names(Path(above + slash) if slash else Path()))
    return [
        f"{above}{slash}{name}{'/' if is_dir else ''}"
        for name, is_dir in found
        if name.startswith(start) and (is_dir or name.endswith(suffixes))
    ]


def stages_of(target: str | None) -> dict[str, str]:
    """Name and kind of the stages of a run or a spec; of the newest run if none is named."""
    if target is not None and target.endswith(_SPEC_SUFFIXES):
        values = _spec_values(Path(target))
    else:
        values = _run_values(target)
    stages = values.get("stages")
    if not isinstance(stages, dict):
        return {}
    return {
        name: _kind(stage.get("run")) if isinstance(stage, dict) else ""
        for name, stage in stages.items()
        if isinstance(name, str) and _PLAIN.fullmatch(name)
    }


def _kind(run: object) -> str:
    """What shows beside a stage's name; a tab or line break in it would make another candidate."""
    return run if isinstance(run, str) and run.isprintable() else ""


def _run_values(target: str | None) -> dict[str, Any]:
    """The spec of a run as it was understood."""
    run = Path(target) if target else None
    if run is None or not _is_run(run):
        name = next(iter(run_names(run.name if run else "")), None)
        if name is None:
            return {}
        run = runs_dir() / name
    try:
        values = json.loads((run / "spec" / "resolved.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _spec_values(file: Path) -> dict[str, Any]:
    """The top of a spec, without its values' meaning: aliases are not followed."""
    import yaml

    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return {}
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        text = file.read_text(encoding="utf-8")
        if _depth(yaml.parse(text, Loader=loader)) > _MAX_DEPTH:
            return {}
        node = yaml.compose(text, Loader=loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    stages = _mapping(_mapping(node).get("stages"))
    kinds = {name: _mapping(stage).get("run") for name, stage in stages.items()}
    return {"stages": {name: {"run": getattr(run, "value", "")} for name, run in kinds.items()}}


def _depth(events: Iterable[Any]) -> int:
    """Of the deepest node; composed, some thousands end the process, which overflows its stack."""
    depth = deepest = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        deepest = max(deepest, depth)
        if deepest > _MAX_DEPTH:
            break
    return deepest


def _mapping(node: Any) -> dict[str, Any]:
    """Keys and nodes of a mapping's node; nothing of another."""
    if getattr(node, "id", "") != "mapping":
        return {}
    return {key.value: value for key, value in node.value if isinstance(key.value, str)}


def spec_keys(prefix: str, stages: Mapping[str, str]) -> list[str]:
    """Keys for `--set`, level by level: `stages.` and `stages.train.resources.nodes=`."""
    from slurm_jobs.shipped import shipped_path

    try:
        schema = json.loads(shipped_path("templates", "schema", "spec.schema.json").read_bytes())
    except (OSError, ValueError):
        return []
    above, dot, start = prefix.rpartition(".")
    node = schema
    parts = above.split(".") if dot else []
    for number, part in enumerate(parts):
        kind = stages.get(parts[1], "") if number == _STAGE_KEY and part == "config" else ""
        node = _below(schema, node, part, kind)
    names = stages if parts == ["stages"] else _properties(schema, node)
    return [
        f"{above}{dot}{name}{'.' if _is_open(schema, _below(schema, node, name, '')) else '='}"
        for name in names
        if name.startswith(start)
    ]


def _meant(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node with its reference followed, and of several the one that has keys."""
    for choice in (node, *node.get("anyOf", ())):
        reference = choice.get("$ref", "").rpartition("/")[2]
        found: Mapping[str, Any] = schema["$defs"].get(reference, choice)
        if found.get("properties") or found.get("patternProperties"):
            return found
    return node


def _properties(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = _meant(schema, node).get("properties", {})
    return properties


def _is_open(schema: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether keys stand below it, rather than a value."""
    meant = _meant(schema, node)
    return bool(meant.get("properties")) or meant.get("type") == "object"


def _below(
    schema: Mapping[str, Any], node: Mapping[str, Any], part: str, kind: str
) -> Mapping[str, Any]:
    """The node of a key; `kind` of the stage whose config it is, where it is one."""
    meant = _meant(schema, node)
    if kind:
        wanted = f"{kind.capitalize()}Config"
        return {"$ref": f"#/$defs/{wanted}"} if wanted in schema["$defs"] else {}
    patterns = list(meant.get("patternProperties", {}).values())
    found: Mapping[str, Any] = meant.get("properties", {}).get(
        part, patterns[0] if patterns else {}
    )
    return found

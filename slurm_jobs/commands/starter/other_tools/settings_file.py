"""Reading of another tool's training: a YAML file, or the command in a shell script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.commands.starter.data_inspection import expanded
from slurm_jobs.commands.starter.other_tools.axolotl import AXOLOTL
from slurm_jobs.commands.starter.other_tools.foreign_training import ForeignTraining, has_value
from slurm_jobs.commands.starter.other_tools.llama_factory import LLAMA_FACTORY
from slurm_jobs.commands.starter.other_tools.llama_factory_v1 import LLAMA_FACTORY_V1
from slurm_jobs.commands.starter.other_tools.ms_swift import MS_SWIFT
from slurm_jobs.commands.starter.other_tools.shell_command import training_commands
from slurm_jobs.commands.starter.other_tools.tool_table import Setting, Tool

TOOLS = (LLAMA_FACTORY, AXOLOTL, LLAMA_FACTORY_V1, MS_SWIFT)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_MAX_BYTES = 1 << 20
_MAX_FOLDERS_ABOVE = 6
_TRAINING_VERBS = frozenset({"sft", "train"})
_KNOWN = (
    "a YAML file of LLaMA-Factory or axolotl, or a shell script with `swift sft` or "
    "`llamafactory-cli train`"
)


def read_training(path: Path) -> ForeignTraining:
    """Read a training of another tool.

    Raises:
        InputError: the file cannot be read, describes no training, or another kind than supervised
            fine-tuning.
    """
    path = expanded(path)
    text = _text_of(path)
    if path.suffix.lower() in {".yaml", ".yml", ".json"}:
        values = _mapping(path, text)
        tool = _tool_of(path, values)
        return _checked(path, tool, values, is_script=False)
    commands = list(training_commands(text))
    if not commands:
        message = f"{path} has no training that is known here: name {_KNOWN}"
        raise InputError(message)
    command = next((each for each in commands if each.verb in _TRAINING_VERBS), commands[0])
    if command.verb not in _TRAINING_VERBS:
        message = (
            f"{path} starts `{command.tool} {command.verb}`, which is not supervised fine-tuning: "
            "slurm-jobs trains in no other way"
        )
        raise InputError(message)
    values = dict(command.settings)
    tool = _BY_NAME[command.tool]
    if command.config is not None:
        named = near_path(Path(command.config), path)
        if named is None:
            message = f"{path} names {command.config}, which does not exist here"
            raise InputError(message)
        of_file = _mapping(named, _text_of(named))
        tool = _tool_of(named, of_file)
        values = {**of_file, **values}
    return _checked(path, tool, values, is_script=True)


def near_path(path: Path, file: Path) -> Path | None:
    """Return a path that a file names, relative to the working folder or to one above the file.

    None if it is in none of them.
    """
    above = list(file.absolute().parents)[:_MAX_FOLDERS_ABOVE]
    for start in (Path.cwd(), *above):
        place = start / path
        if place.exists():
            return place
    return None


def _text_of(path: Path) -> str:
    try:
        return read_text(path, most_bytes=_MAX_BYTES)
    except OSError as error:
        message = f"{path}: {error.strerror or error}; name {_KNOWN}"
        raise InputError(message) from error
    except ValueError as error:
        message = f"{path} is no text: name {_KNOWN}"
        raise InputError(message) from error


def _mapping(path: Path, text: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = f"{path} is no valid YAML: {error}"
        raise InputError(message) from error
    if not isinstance(values, dict):
        message = f"{path} has no keys: name {_KNOWN}"
        raise InputError(message)
    return {str(key): value for key, value in values.items()}


def _tool_of(path: Path, values: Mapping[str, Any]) -> Tool:
    for tool in TOOLS:
        if not tool.known_by.isdisjoint(values):
            return tool
    keys = ", ".join(f"`{min(tool.known_by)}` of {tool.name}" for tool in TOOLS)
    message = f"{path} has none of the keys by which a training is known: {keys}"
    raise InputError(message)


def _checked(
    path: Path, tool: Tool, values: Mapping[str, Any], *, is_script: bool
) -> ForeignTraining:
    """Return the training, with the tool's defaults where the file has no value of a meaning."""
    settings = [Setting(key=key, value=value) for key, value in _flat(values, tool, "")]
    training = ForeignTraining(file=path, tool=tool, settings=tuple(settings))
    for setting in settings:
        allowed = tool.allowed.get(setting.table_key)
        if allowed is None or not has_value(setting):
            continue
        if str(setting.value).strip().lower() not in allowed:
            message = (
                f"{path}: {setting.key} is {setting.value}, which is not supervised fine-tuning: "
                "slurm-jobs trains in no other way"
            )
            raise InputError(message)
    defaults = {**tool.defaults, **(tool.script_defaults if is_script else {})}
    if training.text("method") == "full":
        defaults.update(tool.defaults_of_full)
    given = {training.rule(setting) for setting in settings if has_value(setting)}
    for key, value in defaults.items():
        if tool.table.get(key) not in given:
            settings.append(Setting(key=key, value=value, is_default=True))
    return ForeignTraining(file=path, tool=tool, settings=tuple(settings))


def _flat(values: Mapping[str, Any], tool: Tool, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield keys with dots, down to those that the tool's table has as a whole."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        table_key = Setting(key=name, value=None).table_key
        is_whole = table_key in tool.table
        is_divided = any(known.startswith(f"{table_key}.") for known in tool.table)
        if is_whole and not is_divided:
            yield name, value
        elif isinstance(value, Mapping) and value:
            yield from _flat({str(k): v for k, v in value.items()}, tool, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            yield from _flat({str(i): v for i, v in enumerate(value)}, tool, f"{name}.")
        else:
            yield name, value

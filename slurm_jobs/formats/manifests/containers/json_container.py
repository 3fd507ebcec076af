"""Recognition of a JSON file that is one object with lists, and its rows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import open_regular, read_bytes
from slurm_jobs.formats.manifests.containers import coco_captions, vqa_questions
from slurm_jobs.formats.manifests.containers.data_set_lists import read_data_sets

MAX_CONTAINER_BYTES = 1 << 30
"""Larger files are not read: Python needs some five times as much memory for their values."""
_HEAD_BYTES = 1 << 16
_KEYS = "info|images|annotations|questions|licenses?|categories|type|(?:data_|task_)\\w*type"
_BEGINNING = re.compile(rf'\s*\{{\s*"(?:{_KEYS})"\s*:'.encode())
"""First key of such an object, with which a row of JSON lines may begin, too."""
_MAX_NEIGHBOURS = 50
"""JSON files in the same folder that are searched for the answers to questions."""


class NoContainerError(ValueError):
    """Object whose lists cannot be rows; the message follows its path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """Rows that are joined from the lists of one file, or of two."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    rows: list[Any]
    """All rows; values that are no mappings are bad rows."""


def find_container(path: Path) -> Container | None:
    """Return the container in a file; None for a file of any other form.

    Raises:
        NoContainerError: it is one, but has no captions, or lacks its other file.
        OSError: it cannot be read.
    """
    values = _read_object(path)
    if values is None:
        return None
    if coco_captions.is_coco(values):
        problem = coco_captions.coco_problem(values)
        if problem is not None:
            raise NoContainerError(problem)
        return Container(
            files=(path,),
            columns=coco_captions.COLUMNS,
            rows=coco_captions.coco_rows(values),
        )
    if vqa_questions.is_questions(values) or vqa_questions.is_answers(values):
        return _vqa(path, values)
    return None


def _read_object(path: Path) -> Mapping[str, Any] | None:
    """Return the object that a JSON file is; None if it does not begin like such a container."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    with open_regular(path) as stream:
        head = stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
        if not head.lstrip().startswith(b"{"):
            return None
        # Rows of JSON lines may be long: a line that ends an object, with more after it, is one.
        stream.seek(0)
        first_line = stream.readline(MAX_CONTAINER_BYTES)
        if first_line.rstrip().endswith(b"}") and stream.read(_HEAD_BYTES).strip():
            return None
    if not _BEGINNING.match(head):
        if read_data_sets(path) is not None:
            message = (
                ": a list of data sets, and a manifest is one of them: name its file, or let "
                f"`slurm-jobs init --data {shlex.quote(f'{path}::NAME')}` write the spec for it"
            )
            raise NoContainerError(message)
        return None
    if path.stat().st_size > MAX_CONTAINER_BYTES:
        message = (
            f": one JSON object of more than {MAX_CONTAINER_BYTES:,} bytes, which would have to be "
            "read whole; save its rows as JSON lines, one row in each line"
        )
        raise NoContainerError(message)
    try:
        values = json.loads(read_bytes(path))
    except UnicodeDecodeError as error:
        message = f": not UTF-8 ({error.reason} at byte {error.start}); save the file as UTF-8"
        raise NoContainerError(message) from error
    except (ValueError, RecursionError):
        return None  # not one object: the readers of rows report what is wrong
    return values if isinstance(values, dict) else None


def _vqa(path: Path, values: Mapping[str, Any]) -> Container:
    """Return the questions with the answers, of which one file is given and the other found."""
    has_questions = vqa_questions.is_questions(values)
    others = []
    for other in sorted(path.parent.glob("*.json"))[:_MAX_NEIGHBOURS]:
        found = None if other == path else _read_object(other)
        if found is None:
            continue
        if has_questions and vqa_questions.is_answers(found):
            pair = (values, found)
        elif not has_questions and vqa_questions.is_questions(found):
            pair = (found, values)
        else:
            continue
        if vqa_questions.belong_together(*pair):
            others.append((other, pair))
    if len(others) != 1:
        what = "answers (VQA's *_annotations.json)" if has_questions else "questions"
        number = "no file" if not others else f"{len(others)} files"
        message = (
            f": these are {'questions' if has_questions else 'answers'} in VQA's format, and "
            f"{number} with their {what} lies next to it; put one there"
        )
        raise NoContainerError(message)
    ((other, pair),) = others
    problem = vqa_questions.vqa_problem(pair[0])
    if problem is not None:
        raise NoContainerError(problem)
    files = (path, other) if has_questions else (other, path)
    return Container(
        files=files,
        columns=vqa_questions.COLUMNS,
        rows=vqa_questions.vqa_rows(*pair),
    )

"""File of what trials have chosen, as a later attempt reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slurm_jobs.base.regular_files import read_bytes

log = logging.getLogger(__name__)

T = TypeVar("T")


def read_kept(file: Path, check: Callable[[Any], T | None], consequence: str) -> T | None:
    """Return the checked values of a file; None if it does not exist, or with a warning."""
    try:
        return check(json.loads(read_bytes(file)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s is damaged (%r): %s", file, error, consequence)
        return None


def as_json(values: dict[str, Any]) -> Any:
    """Return the values as they are read back: tuples become lists."""
    return json.loads(json.dumps(values))

"""Config of chained targets: a chain of thought in which each level reads those before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.common.config_values import Positive, check_bounds, refuse


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelConfig:
    """Level of a chain: one of the assistant's turns."""

    name: str
    """Name of the level, in results."""
    head: Literal["text", "classes"] = "text"
    """`text`: the answer is learned token by token. `classes`: a linear layer on the hidden state
    before the answer predicts which of `classes` it is; later levels read the answer's text."""
    classes: tuple[str, ...] = ()
    """All possible answers of a level with `head: classes`, as in the manifest."""
    weight: Positive = 1.0
    """Weight of this level's mean loss in the sum over all levels."""

    def __post_init__(self) -> None:
        """Check that the classes offer a choice."""
        check_bounds(self)
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.head == "text" and self.classes:
            yield f"level {self.name}: classes are given and head is text: set `head: classes`"
        if self.head == "classes" and len(set(self.classes)) < max(2, len(self.classes)):
            yield f"level {self.name}: give two classes or more, each once"
        for name in self.classes:
            if name != name.strip():
                yield (
                    f"level {self.name}: the class {name!r} has white space around it, without "
                    f"which answers are read and compared; write {name.strip()!r}"
                )

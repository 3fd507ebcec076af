"""One rank of two that go through many cases together, because starting them takes longest.

Usage: python rank_pair.py RANK PORT FOLDER GROUP; writes FOLDER/found.RANK.json. GROUP is `ours`,
or `accelerate` or `searches` with the cases of ours that those are compared with.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from slurm_jobs.base.errors import SlurmJobsError
from tests.contexts import make_context
from tests.pipeline.train.strategies import (
    accelerate_cases,
    cases_memory,
    cases_microbatches,
    cases_optimizers,
    cases_preflight,
    cases_quantized,
)
from tests.pipeline.train.strategies.cases import CASES, Case
from tests.pipeline.train.strategies.trainer import Alone, Trainer, open_kind

REGISTERED = (
    cases_memory,
    cases_microbatches,
    cases_optimizers,
    cases_preflight,
    cases_quantized,
)


def main() -> None:
    rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    cases = cases_of(sys.argv[4])
    torch.set_num_threads(1)
    context = make_context("train", folder / str(rank), rank=rank, num_ranks=2, main_port=port)
    ranks = join_ranks(context, device_type="cpu", timeout_min=0.5)
    kinds = {path.name: open_kind(path.name, path) for path in (folder / "kinds").iterdir()}
    pair = Trainer(kinds=kinds, ranks=ranks, folder=folder / str(rank))
    alone = Trainer(kinds=kinds, ranks=Alone(), folder=folder / str(rank))
    found = {name: attempt(case, alone, pair) for name, case in cases.items()}
    (folder / f"found.{rank}.json").write_text(json.dumps(found))
    leave_ranks()


def cases_of(group: str) -> dict[str, Case]:
    if group == "accelerate":
        return {name: CASES[name] for name in CASES if name in accelerate_cases.WITH_COMPARED}
    searches = [cases_microbatches.searching(name) for name in cases_microbatches.MORE_STRATEGIES]
    if group == "searches":
        compared = [cases_microbatches.given(name) for name in cases_microbatches.MORE_STRATEGIES]
        return {name: CASES[name] for name in (*searches, *compared)}
    left = {*accelerate_cases.OWN, *searches}
    return {name: CASES[name] for name in CASES if name not in left}


def attempt(case: Case, alone: Trainer, pair: Trainer) -> Any:
    """What the case gives, or the error that it ends with."""
    begun_s = time.monotonic()
    try:
        found = case(alone, pair)
    except SlurmJobsError as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    except Exception:  # noqa: BLE001 - the tests of the other cases go on
        found = {"crash": traceback.format_exc()}
    return {**found, "seconds": time.monotonic() - begun_s}


if __name__ == "__main__":
    main()

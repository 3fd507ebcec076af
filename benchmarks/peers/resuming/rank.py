"""One rank, in its own process, of a training that is stopped and resumed.

    python -m benchmarks.peers.resuming.rank '{"module": ..., ...}'

Loads the state in `state_in`, then reads `num_steps` batches, or to the end of the epoch if the
loader ends there. It writes the state to `state_out`, and to `out` what it read and the seconds
from opening the set to the first batch. Imports are not counted.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pickle
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.peers.resuming.going_on import Place


def main() -> None:
    """Build the set, or read it."""
    warnings.filterwarnings("ignore")
    request = json.loads(sys.argv[1])
    module = importlib.import_module(f"benchmarks.peers.resuming.{request['module']}")
    importlib.import_module(module.NEEDS)
    if "build" in request:
        folder = Path(request["build"])
        folder.mkdir(parents=True)
        module.build_numbers(folder, request["num_samples"])
        return
    _join_the_others()
    Path(request["out"]).write_text(json.dumps(read(module, request)))


def read(module: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return what this rank read, and its times."""
    place = Place(
        rank=int(os.environ["RANK"]),
        num_ranks=int(os.environ["WORLD_SIZE"]),
        batch_size=request["batch_size"],
    )
    start_s = time.perf_counter()
    loader = module.open_numbers(Path(request["folder"]), place)
    if request.get("state_in"):
        loader.load_state_dict(pickle.loads(Path(request["state_in"]).read_bytes()))  # noqa: S301
    batches = iter(loader)
    first = next(batches)
    first_s = time.perf_counter() - start_s
    num_more = None if request["num_steps"] is None else request["num_steps"] - 1
    steps = [_numbers(batch) for batch in (first, *itertools.islice(batches, num_more))]
    if request.get("state_out"):
        Path(request["state_out"]).write_bytes(pickle.dumps(loader.state_dict()))
    found_s = getattr(loader, "position_s", None)
    return {
        "steps": steps,
        "first_s": first_s,
        "position_s": None if found_s is None else found_s - start_s,
    }


def _numbers(batch: Any) -> list[int]:
    return [int(number) for number in batch]


def _join_the_others() -> None:
    """Join a process group as under torchrun; some peers use it."""
    import torch.distributed

    if int(os.environ["WORLD_SIZE"]) > 1:
        torch.distributed.init_process_group("gloo")


if __name__ == "__main__":
    main()

"""Stages of a user's own that fail, one function for each way to fail; `rank` says which rank.

The other ranks sleep, or wait in a collective of torch.distributed if `peers` says so.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from slurm_jobs.base.errors import (
    StageCodeError,
    StageConfigError,
    StageDataError,
    StageError,
    StageStoppedError,
)


class Unprintable:
    pass


def no_number(_context):
    int("caption")


def no_key(_context):
    return {}["image"]


def no_name(_context):
    return missing_name  # noqa: F821


def no_argument(_context):
    json.dumps()


def no_attribute(_context):
    return json.loadz


def no_syntax(_context):
    compile("def", "own.py", "exec")


def no_package(_context):
    import no_such_package  # noqa: F401


def no_json(_context):
    return {"value": Unprintable()}


def no_mapping(_context):
    return [1, 2]


def no_output(_context):
    return {"outputs": {"part.tar": 10}}


def refused_config(_context):
    raise StageConfigError("size 7 is no multiple of 2")


def refused_data(_context):
    raise StageDataError("/data/m.csv:3: a quote is not closed")


def refused_rows(_context):
    setting = "stages.refused_rows.config.max_share=0.25"
    raise StageDataError("5 of 20 rows cannot be used", resumes=[("--set", setting)])


def refused_code(_context):
    raise StageCodeError("the function knows no such task")


def may_work_later(_context):
    raise StageError("the server is busy")


def host_memory(_context):
    bytearray(1 << 62)


def device_memory(_context):
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def full_disk(_context):
    Path("/dev/full").write_text("x")


def deep(context):
    deep(context)


def leaves(_context):
    print("cannot open part 6", file=sys.stderr)
    sys.exit(3)


def leaves_well(_context):
    sys.exit(0)


def leaves_at_once(_context):
    os._exit(5)


def unasked_stop(_context):
    raise StageStoppedError("saved at step 7")


def killed(_context):
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(_context):
    os.kill(os.getpid(), signal.SIGSEGV)


def aborts(_context):
    os.abort()


def without_keeper(_context):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def returns_early(_context):
    return {}


def run(config, context):
    """Fail on one rank as `how` says."""
    function = globals()[config["how"]]
    if context.num_ranks == 1:
        return function(context)
    is_at_fault = context.rank == config["rank"]
    if config["peers"] == "in a collective":
        import torch.distributed as dist

        store = f"file://{context.task_dir}/store"
        ranks = {"rank": context.rank, "world_size": context.num_ranks}
        dist.init_process_group("gloo", init_method=store, **ranks)
        dist.barrier()
        if is_at_fault:
            return function(context)
        dist.barrier()
        return {}
    if is_at_fault:
        return function(context)
    time.sleep(60)
    return {}

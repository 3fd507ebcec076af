"""Two ranks that save and restore a tiny sharded model in many ways; prints what each case found.

Usage: python rank_cases.py RANK PORT FOLDER

The last case ends rank 1 by SIGKILL in the middle of a save.
"""

import contextlib
import errno
import hashlib
import json
import os
import random
import resource
import signal
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from pipeline.train.checkpoints import checkpoint_folders
from pipeline.train.checkpoints import saver as saver_module
from pipeline.train.checkpoints.checkpoint_record import Identity, Work
from pipeline.train.checkpoints.restoring import restore
from pipeline.train.checkpoints.saver import Saver
from pipeline.train.checkpoints.training_state import Checkpoints, TrainingState
from pipeline.train.ranks.process_group import join_ranks, new_host_group
from slurm_jobs.base.errors import SlurmJobsError
from tests.contexts import make_context

WIDTH = 16
IDENTITY = Identity(
    lasting_config={"seed": 0}, dataset_fingerprint="d", work=Work(), versions={"torch": "2"}
)


def build(*, seed=0, width=WIDTH, is_sharded=True, dtype=torch.float32):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, width), nn.Dropout(0.2), nn.Linear(width, 1)).to(dtype)
    if is_sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)


def train(made, steps, rank):
    model, optimizer = made
    for step in steps:
        data = torch.Generator().manual_seed(100 * step + rank)
        model(torch.randn(8, WIDTH, generator=data)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what libraries draw from


def draw():
    return [torch.rand(1).item(), random.random(), np.random.random_sample()]  # noqa: NPY002


def digest(made):
    """Of weights and optimizer, whatever ranks hold them; a collective."""
    model, optimizer = made
    tensors = list(model.parameters())
    tensors += [value for p in tensors for value in optimizer.state[p].values()]
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    content = b"".join(t.detach().contiguous().view(-1).numpy().tobytes() for t in whole)
    return hashlib.sha256(content).hexdigest()[:16]


class Counter:
    """Stands in for a scaler: numbers, a list and a tensor, others on each rank."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"scale": self.value, "all": [self.value], "tensor": torch.tensor([self.value])}

    def load_state_dict(self, state):
        assert state["all"] == [state["scale"]] == state["tensor"].tolist()
        self.value = state["scale"]


class GatedWriter(saver_module.PartWriter):
    """Writes when the gate is open."""

    gate = threading.Event()

    def write_data(self, plan, planner):
        assert self.gate.wait(60)
        return super().write_data(plan, planner)


class Cases:
    def __init__(self, ranks, folder):
        self.ranks, self.rank, self.folder = ranks, ranks.rank, folder
        self.group = new_host_group(timeout_min=0.5)

    def checkpoints(self, case, made, **extra):
        state = TrainingState(model=made[0], optimizer=made[1], extra=extra)
        return Checkpoints(
            root=self.folder / case, attempt=1, ranks=self.ranks, state=state, identity=IDENTITY
        )

    @contextlib.contextmanager
    def saver(self, case, made, **extra):
        checkpoints = self.checkpoints(case, made, **extra)
        saver = Saver(checkpoints, keep_last=9, group=self.group, device=torch.device("cpu"))
        try:
            yield saver
        finally:
            saver.close()

    def the_copy_is_of_its_step(self):
        """Twice: the second time the state is copied into the memory of the first."""
        made = build()
        GatedWriter.gate.clear()
        with (
            self.saver("copy", made) as saver,
            patch.object(saver_module, "PartWriter", GatedWriter),
        ):
            for step in (3, 6):
                train(made, range(step - 3, step), self.rank)
                wanted = digest(made)
                saver.begin(step, 0.5)
                train(made, range(step, step + 3), self.rank)
                later, ended = digest(made), saver.has_ended_here()
                GatedWriter.gate.set()
                saver.finish()
                GatedWriter.gate.clear()
                restore(self.checkpoints("copy", made))
                found = {"wanted": wanted, "restored": digest(made)}
                yield {f"step {step}": {**found, "later": later, "ended before": ended}}

    def resume_equals_uninterrupted(self):
        made = build()
        seed_all(self.rank)
        train(made, range(6), self.rank)
        uninterrupted = digest(made)
        made = build()
        seed_all(self.rank)
        train(made, range(3), self.rank)
        with self.saver("resume", made) as saver:
            saver.begin(3, 0.5)
            train(made, range(3, 6), self.rank)
            beside = digest(made)
            saver.finish()
        made = build(seed=1)
        seed_all(77)
        step = restore(self.checkpoints("resume", made)).step
        train(made, range(step, 6), self.rank)
        yield {"uninterrupted": uninterrupted, "beside": beside, "resumed": digest(made)}

    def generators_of_every_rank(self):
        made = build()
        seed_all(10 + self.rank)
        with self.saver("rng", made) as saver:
            saver.begin(1, 0.5)
            drawn = draw()
            saver.finish()
        seed_all(99)
        restore(self.checkpoints("rng", made))
        yield {"drawn": drawn, "again": draw()}

    def extra_state(self):
        made, saved = build(), Counter(5.0 + self.rank)
        with self.saver("extra", made, scaler=saved) as saver:
            saver.begin(1, 0.5)
            saved.value = -1.0
            saver.finish()
        own, unknown = Counter(0.0), Counter(3.0)
        restore(self.checkpoints("extra", made, scaler=own, unknown=unknown))
        restore(self.checkpoints("extra", made))
        yield {"own": own.value, "unknown": unknown.value}

    def a_second_save_waits_for_the_first(self):
        made, order = build(), []
        GatedWriter.gate.clear()
        with (
            self.saver("second", made) as saver,
            patch.object(saver_module, "PartWriter", GatedWriter),
        ):
            write, stage = saver._write, saver_module.StateDictStager.stage

            def noted_write(*args, **options):
                upload = write(*args, **options)
                order.append(f"wrote {upload.step}")
                return upload

            def noted_stage(*args, **options):
                order.append("copied")
                return stage(*args, **options)

            saver._write = noted_write
            with patch.object(saver_module.StateDictStager, "stage", noted_stage):
                saver.begin(1, 0.5)
                threading.Timer(0.1, GatedWriter.gate.set).start()
                saver.begin(2, 0.5)
            saver.save(3, 0.5)
        yield {"order": order, "steps": steps(self.folder / "second")}

    def no_room_on_one_rank(self):
        made, rank = build(width=4096), self.rank

        class ShortOfRoom(saver_module.PartWriter):
            def write_data(self, plan, planner):
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000 if rank else soft, hard))
                try:
                    return super().write_data(plan, planner)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        with self.saver("room", made) as saver:
            saver.save(1, 0.5)
            with patch.object(saver_module, "PartWriter", ShortOfRoom):
                saver.begin(2, 0.5)
                yield {"told": failure_of(saver.finish), "left": names(self.folder / "room")}

    def not_published(self):
        made = build()

        def over_quota(*_):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

        with (
            self.saver("quota", made) as saver,
            patch.object(checkpoint_folders, "publish_checkpoint", over_quota),
        ):
            saver.begin(1, 0.5)
            yield {"told": failure_of(saver.finish), "left": names(self.folder / "quota")}

    def of_another_model(self):
        made = build()
        with self.saver("other", made) as saver:
            saver.save(1, 0.5)
        more = build()[0]
        more.append(fully_shard(nn.Linear(2, 2)))
        fewer = build()[0]
        del fewer[2]
        models = {"dtype": build(dtype=torch.bfloat16)[0], "shape": build(width=8)[0]}
        for kind, model in {**models, "more": more, "fewer": fewer}.items():
            other = self.checkpoints("other", (model, torch.optim.AdamW(model.parameters())))
            yield {kind: failure_of(lambda it=other: restore(it))}

    def killed_while_it_saves(self):
        made = build()
        train(made, range(3), self.rank)
        rank = self.rank

        class Killed(saver_module.PartWriter):
            def write_data(self, plan, planner):
                if rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().write_data(plan, planner)

        with self.saver("killed", made, scaler=Counter(7.0 + self.rank)) as saver:
            saver.begin(3, 0.5)
            saver.finish()
            yield {"digest": digest(made)}
            with patch.object(saver_module, "PartWriter", Killed):
                saver.begin(6, 0.5)
                try:
                    saver.finish()
                except RuntimeError:  # rank 1 is gone
                    yield {"left": names(self.folder / "killed")}


def failure_of(call):
    try:
        call()
    except SlurmJobsError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def steps(folder):
    return [step for step, _ in checkpoint_folders.list_checkpoints(folder)]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def main():
    rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    context = make_context("train", folder, rank=rank, num_ranks=2, main_port=port)
    ranks = join_ranks(context, device_type="cpu", timeout_min=0.5)
    cases = Cases(ranks, folder)
    for name in CASES:
        for found in getattr(cases, name)():
            print(json.dumps({"case": name, **found}), flush=True)


CASES = (
    "the_copy_is_of_its_step",
    "resume_equals_uninterrupted",
    "generators_of_every_rank",
    "extra_state",
    "a_second_save_waits_for_the_first",
    "no_room_on_one_rank",
    "not_published",
    "of_another_model",
    "killed_while_it_saves",
)

if __name__ == "__main__":
    main()

"""Samples in packs: pure functions on the lengths of an index, and the file that keeps the result.

`plan.pack_order` packs an epoch by one of `strategies.STRATEGIES`, `files` keeps
the packs, `work` says what each costs and `deal` gives every rank as much of it.
Reading the samples of a pack, and what the model is told of its segments, are
left to the reader.
"""

from pipeline.data.packing.budget import (
    OverBudgetError,
    PackBudget,
    Packs,
    check_sizes,
    join_packs,
    too_large,
)
from pipeline.data.packing.deal import WINDOW_GROUPS, deal_by_work, deal_epoch
from pipeline.data.packing.files import open_packs, plan_name, write_packs
from pipeline.data.packing.lower_bound import fewest_packs
from pipeline.data.packing.plan import make_packs, pack_order
from pipeline.data.packing.statistics import Padding, Waits, padding, waits
from pipeline.data.packing.strategies import STRATEGIES
from pipeline.data.packing.work import WorkModel, pack_work, work_model

__all__ = [
    "STRATEGIES",
    "WINDOW_GROUPS",
    "OverBudgetError",
    "PackBudget",
    "Packs",
    "Padding",
    "Waits",
    "WorkModel",
    "check_sizes",
    "deal_by_work",
    "deal_epoch",
    "fewest_packs",
    "join_packs",
    "make_packs",
    "open_packs",
    "pack_order",
    "pack_work",
    "padding",
    "plan_name",
    "too_large",
    "waits",
    "work_model",
    "write_packs",
]

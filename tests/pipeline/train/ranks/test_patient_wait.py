"""Waits for all ranks without a timeout."""

import pytest
import torch.distributed as dist

from pipeline.train.ranks import patient_wait
from pipeline.train.ranks.patient_wait import arrive, tell_node, wait_for_all

NODES = ("n1", "n1", "n2", "n2", "n3")


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(patient_wait, "FIRST_WORD_S", 0.0)
    store = dist.HashStore()
    for rank, node in enumerate(NODES):
        tell_node(store, rank, node)
    return store


def come(store, *ranks):
    for rank in ranks:
        arrive(store, "stage_in", rank=rank, num_ranks=len(NODES))


def wait_until_told(store, monkeypatch, *, came_later):
    """The words that rank 0 says while it waits; after each of them some more ranks come."""
    said, later = [], iter(came_later)

    def say(message, *values):
        said.append(message % values)
        come(store, *next(later))

    monkeypatch.setattr(patient_wait.log, "warning", say)
    wait_for_all(store, "stage_in", num_ranks=len(NODES), speaks=True)
    return said


def test_a_long_wait_names_the_ranks_that_are_missing_and_their_nodes(store, monkeypatch):
    come(store, 0)
    said = wait_until_told(store, monkeypatch, came_later=[(1, 3), (2, 4)])
    assert [words.rpartition(" for ")[2] for words in said] == [
        "n1 (rank 1), n2 (ranks 2-3), n3 (rank 4)",
        "n2 (rank 2), n3 (rank 4)",
    ]
    assert all(words.startswith("stage_in: waiting for ") for words in said)


def test_who_comes_last_does_not_wait(store, monkeypatch):
    come(store, 4, 3, 2, 1, 0)
    assert wait_until_told(store, monkeypatch, came_later=[]) == []


def test_one_meeting_says_nothing_of_another(store):
    come(store, 0, 1, 2, 3, 4)
    assert not store.check(["export/all"])

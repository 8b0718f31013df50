"""The processes in which plans are searched for: kept, begun again, ended with their worker."""

from __future__ import annotations

import gc
import traceback
from pathlib import Path

import psutil
import pytest

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.make_room.plan import Bounds
from placement_server.candidates.make_room.process import RoomProcesses
from placement_server.candidates.make_room.question import Question, UnknownTree
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store

from .candidate_world import UNKNOWN

QUESTION = Question(CandidateQuery((RequestGroup("", (("VCPU", 1),)),)), Bounds(seconds=50))
NOTHING = {"plans": [], "proved": True, "stays": []}


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def require_refusal(processes: RoomProcesses) -> None:
    with pytest.raises(UnknownTree) as refused:
        processes.answer(Question(None, Bounds(), emptied=(UNKNOWN,)))
    assert refused.value.pointer == "/empty/0"


def require_where_it_failed(processes: RoomProcesses) -> None:
    with pytest.raises(AttributeError) as failed:
        processes.answer(Question(None, None))  # type: ignore[arg-type]
    assert "make_room/question.py" in "".join(traceback.format_exception(failed.value))
    assert "Traceback" not in str(failed.value)


def test_a_process_is_kept_and_begun_again_and_ends_with_its_worker(tmp_path: Path) -> None:
    before = children()
    store = Store.open(f"sqlite:///{tmp_path}/db", options=StoreOptions(sync_on_startup=True))
    store.synchronise_standard_names()
    processes = RoomProcesses(store, IndexFollower(store), 60, None, 1)
    assert processes.answer(QUESTION) == NOTHING
    [first] = children() - before
    require_refusal(processes)
    require_where_it_failed(processes)
    assert processes.answer(QUESTION) == NOTHING
    assert children() - before == {first}
    first.kill()
    psutil.wait_procs([first], timeout=60)
    assert processes.answer(QUESTION) == NOTHING
    [second] = children() - before
    del processes
    # the tracebacks above refer to it
    gc.collect()
    assert psutil.wait_procs([second], timeout=60)[1] == []
    store.close()

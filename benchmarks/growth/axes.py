"""Costs as the hosts, groups, clients, workers or schedulers double.

CPU seconds, the least of several rounds in which all numbers have their turn: other work on the
machine only ever adds to them. So the rows of workers say what one more worker gives on a machine
with cores to spare, which the one that measures need not be.
"""

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.claims.clients import Target, make_ample_hosts
from benchmarks.claims.rates import ask_and_claim
from benchmarks.growth.plots import Axis, draw, exponent
from benchmarks.in_process import searches
from benchmarks.parts.client import Client
from benchmarks.parts.postgresql import postmaster_pid, temporary_postgresql
from benchmarks.parts.servers import create_database_of, ours
from benchmarks.reads.growth import fill_file
from benchmarks.scheduler.schedulers import SCHEDULED, Schedulers, root_of
from placement_server.candidates.index.feed import Feed
from placement_server.candidates.index.index import Index, IndexWriter
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.fixtures.rabbitmq import RabbitMq

PICTURES: Final = Path(__file__).parents[2] / "docs" / "images"
#: What one more worker gives at least, of a worker.
WORKER: Final = 0.8
_ROUNDS: Final = 5

Costs = dict[str, dict[int, float]]


def _least(rounds: int, actions: Mapping[int, Callable[[], float]]) -> dict[int, float]:
    """Return the least cost of each number, all of which have their turn in each round."""
    costs = [{number: action() for number, action in actions.items()} for _ in range(rounds)]
    return {number: min(some[number] for some in costs) for number in actions}


def _cpu_ms(action: Callable[[], object], times: int) -> float:
    started_at = time.process_time()
    for _ in range(times):
        action()
    return 1000 * (time.process_time() - started_at) / times


def hosts(quick: bool) -> Axis:
    """Searches and changes in memory, and the first reading of a database."""
    sizes = [1000 * 2**power for power in range(4 if quick else 8)]
    writers = {size: IndexWriter(searches.NAMES, searches.flat_hosts(size)) for size in sizes}
    tree = next(searches.flat_hosts(1))
    costs: Costs = {}
    for limit in (10, 1000):
        query = f"{searches.FLAT}&limit={limit}"
        costs[f"search, limit={limit}"] = _least(
            _ROUNDS,
            {size: partial(_search_ms, writer.index, query) for size, writer in writers.items()},
        )
    costs["one changed host"] = _least(
        _ROUNDS,
        {
            size: partial(_cpu_ms, partial(writer.apply, {tree.root_id: tree}), 20)
            for size, writer in writers.items()
        },
    )
    del writers
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        stores = {size: _filled_store(Path(name) / f"{size}.db", size) for size in sizes}
        costs["cold start from SQLite"] = _least(
            3, {size: partial(_load_ms, store) for size, store in stores.items()}
        )
        for store in stores.values():
            store.close()
    return Axis("hosts", "hosts", "CPU ms", costs)


def _search_ms(index: Index, query: str) -> float:
    return searches.measure(index, query, 15)[0]


def _load_ms(store: Store) -> float:
    return _cpu_ms(Feed(store).index, 1)


def _filled_store(file: Path, size: int) -> Store:
    store = Store.open(f"sqlite:///{file}", options=StoreOptions(sync_on_startup=True))
    store.synchronise_standard_names()
    fill_file(file, size)
    return store


def groups(quick: bool) -> Axis:
    """Groups of one GPU each on a host with 16, a thousand answers."""
    index = IndexWriter(searches.NAMES, searches.gpu_hosts(1, 16)).index
    counts = (1, 2, 4, 8) if quick else (1, 2, 4, 8, 16)
    costs = {
        policy: _least(
            _ROUNDS,
            {count: partial(_search_ms, index, searches.gpus(count, policy)) for count in counts},
        )
        for policy in ("isolate", "none")
    }
    return Axis("groups", "groups of one GPU, host with 16, limit=1000", "CPU ms", costs)


@contextlib.contextmanager
def _targets(workers: Sequence[int], hosts: int) -> Iterator[dict[int, Target]]:
    """Servers of so many workers each, on databases of one PostgreSQL."""
    with temporary_postgresql("growth-") as (cluster, directory), contextlib.ExitStack() as stack:
        pid = postmaster_pid(directory / "postgresql")
        targets = {}
        for count in workers:
            connection = create_database_of(cluster, "ours", f"workers_{count}")
            server = stack.enter_context(
                ours(directory / str(count), connection, count, synchronise=False)
            )
            make_ample_hosts(Client(server.url), hosts)
            targets[count] = Target(server, pid)
        yield targets


def clients(quick: bool) -> Axis:
    """Claims by so many clients at once, two workers."""
    counts = (1, 2, 4, 8) if quick else (1, 2, 4, 8, 16)
    with _targets([2], 64) as targets:
        costs = _claims({count: (targets[2], count) for count in counts}, quick)
    return Axis("clients", "clients at once, two workers", "CPU ms a claim", costs)


def workers(quick: bool) -> Axis:
    """Claims by 16 clients on so many workers."""
    counts = (1, 2, 4) if quick else (1, 2, 4, 8)
    with _targets(counts, 64) as targets:
        costs = _claims({count: (targets[count], 16) for count in counts}, quick)
    return Axis("workers", "workers, 16 clients at once", "CPU ms a claim", costs)


def _claims(sides: Mapping[int, tuple[Target, int]], quick: bool) -> Costs:
    claims = 96 if quick else 640
    server: dict[int, list[float]] = {number: [] for number in sides}
    database: dict[int, list[float]] = {number: [] for number in sides}
    for _ in range(3 if quick else _ROUNDS):
        for number, (target, count) in sides.items():
            outcome = ask_and_claim(target, "growth", count, claims)
            server[number].append(outcome.cpu_ms)
            database[number].append(outcome.database_ms)
    return {
        "server": {number: min(costs) for number, costs in server.items()},
        "database": {number: min(costs) for number, costs in database.items()},
    }


def schedulers(quick: bool) -> Axis:
    """Claims through so many schedulers, eight clients."""
    counts = (1, 2) if quick else (1, 2, 4, 8)
    own: dict[int, float] = {}
    servers: dict[int, float] = {}
    with _targets([2], 0) as targets, contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="growth-")))
        directory.chmod(0o755)
        broker = RabbitMq(directory)
        broker.start()
        stack.callback(broker.stop)
        server = targets[2].server
        SCHEDULED.load(server, quick=True)
        roots = [root_of(number) for number in range(SCHEDULED.quick)]
        for count in counts:
            home = directory / str(count)
            with Schedulers(server, broker, home, count).start(roots) as started_schedulers:
                rounds = [started_schedulers.measure(3.0) for _ in range(3)]
            own[count] = min(some.scheduler_cpu_ms / some.claims for some in rounds)
            servers[count] = min(some.server_cpu_ms / some.claims for some in rounds)
    return Axis(
        "schedulers",
        "schedulers, eight clients at once",
        "CPU ms a claim",
        {"schedulers": own, "placement": servers},
    )


AXES: Final[dict[str, Callable[[bool], Axis]]] = {
    "hosts": hosts,
    "groups": groups,
    "clients": clients,
    "workers": workers,
    "schedulers": schedulers,
}


def show(console: Console, quick: bool, names: Sequence[str] = ()) -> bool:
    """Measure the axes, print them and draw them; whether one more worker gives enough.

    Pictures of short runs are kept apart from those of the documentation.
    """
    holds = True
    pictures = Path(tempfile.mkdtemp(prefix="growth-")) if quick else PICTURES
    for name in names or AXES:
        axis = AXES[name](quick)
        table = Table(title=f"{axis.title}: {axis.unit}")
        table.add_column("")
        numbers = sorted({number for costs in axis.series.values() for number in costs})
        for heading in (*(f"{number:,}" for number in numbers), "exponent"):
            table.add_column(heading, justify="right")
        for title, costs in axis.series.items():
            values = [f"{costs[number]:.3g}" for number in numbers]
            table.add_row(title, *values, f"{exponent(costs):.2f}")
        console.print(table)
        console.print(f"drawn in {draw(axis, pictures)}", style="dim")
        if name == "workers":
            holds &= _gives_enough(console, axis.series["server"])
    return holds


def _gives_enough(console: Console, costs: Mapping[int, float]) -> bool:
    """Print what the last of so many workers gives, by the CPU that a claim takes."""
    holds = True
    for number, cost in costs.items():
        share = costs[1] / cost
        holds &= share >= WORKER
        verdict = "holds" if share >= WORKER else "FAILS"
        console.print(
            f"each of {number} workers gives {share:.2f} of one alone, at least {WORKER}: {verdict}"
        )
    return holds


def main() -> None:
    """Measure some axes: `python -m benchmarks.growth.axes NAME ...`."""
    import sys

    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    show(Console(width=150), "--quick" in sys.argv, [name for name in sys.argv[1:] if name in AXES])


if __name__ == "__main__":
    main()

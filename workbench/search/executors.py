"""Runs units of work with any `concurrent.futures` executor: processes of this machine, a cluster, or threads.

Invariant: a lost worker costs time, not results. Its unit is done again in a process of its own; a unit that loses that
one as well is left out, with its reason, and the search goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Protocol, cast

from workbench.errors import UsageError
from workbench.search.driver import InProcess, Runner
from workbench.search.event_lines import settled
from workbench.search.events import Event, Pruned, Said
from workbench.search.local_processes import LocalProcesses
from workbench.search.work import Known, Outcome, Unit, collected

LOST = "worker lost"
"""The rule that a unit is left out by when it ends its worker twice."""

_Result = tuple[list[Event], Outcome]
_LOG = logging.getLogger("workbench.search")


class HasExecutor(Protocol):
    """A client of a cluster, such as `dask.distributed.Client`."""

    def get_executor(self) -> Executor:
        """Return an executor that submits to the cluster."""
        ...


def runner_of(executor: Executor | HasExecutor | Runner | int | None) -> Runner:
    """Return what runs units: in this process (None), so many processes, an executor, a cluster's client, or a runner.

    Raises: UsageError for anything else.
    """
    if executor is None:
        return InProcess()
    if isinstance(executor, int):
        return WithExecutor(LocalProcesses(executor), owned=True)
    get_executor = getattr(executor, "get_executor", None)
    if get_executor is not None:
        return WithExecutor(cast(Executor, get_executor()))
    if isinstance(executor, Runner):
        return executor
    if not callable(getattr(executor, "submit", None)):
        raise UsageError(
            f"executor {executor!r}: expected an executor, a number of processes, a cluster's client, or a runner"
        )
    return WithExecutor(cast(Executor, executor))


def run_unit(unit: Unit, known: Known) -> _Result:
    """Return all events of a unit, texts written out, and its outcome; this is what workers do."""
    events, outcome = collected(unit, known)
    return [settled(event) for event in events], outcome


class WithExecutor:
    """Submits all units of a round at once, and hands on what they say in order."""

    def __init__(self, executor: Executor, *, owned: bool = False) -> None:
        """Keep the executor. owned: end its workers when a search is left early or over."""
        self.executor, self.owned = executor, owned
        self._spare: LocalProcesses | None = None

    def run(self, units: Sequence[Unit], known: Known) -> Generator[Generator[Event, None, Outcome], None, None]:
        """Yield per unit its events and outcome."""
        futures = [self._submit(unit, {} if number else known) for number, unit in enumerate(units)]
        try:
            for number, (unit, future) in enumerate(zip(units, futures, strict=True)):
                yield self._events(unit, {} if number else known, future)
        finally:
            for future in futures:
                if future is not None:
                    future.cancel()

    def close(self) -> None:
        """End the workers that are ours."""
        if self._spare is not None:
            self._spare.shutdown(cancel_futures=True)
        if self.owned:
            self.executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, unit: Unit, known: Known) -> Future[_Result] | None:
        try:
            return self.executor.submit(run_unit, unit, known)
        except RuntimeError as error:  # broken, or shut down
            _LOG.warning("%s cannot be submitted: %s", unit.name, error)
            return None

    def _events(self, unit: Unit, known: Known, future: Future[_Result] | None) -> Generator[Event, None, Outcome]:
        events, outcome = self._result(unit, known, future)
        yield from events
        return outcome

    def _result(self, unit: Unit, known: Known, future: Future[_Result] | None) -> _Result:
        if future is not None:
            try:
                return future.result()
            except Exception as error:
                if not is_lost_worker(error):
                    raise
                _LOG.warning("%s lost its worker (%s) and is done again in a process of its own", unit.name, error)
        self._spare = self._spare or LocalProcesses(1)
        try:
            return self._spare.submit(run_unit, unit, known).result()
        except BrokenExecutor as error:
            reason = f"it ended its worker twice; at last, {error}"
            _LOG.warning("%s is left out: %s", unit.name, reason)
            event = Pruned(unit.name, LOST, Said("everything of this unit"), Said(reason))
            return [event], Outcome(steps=unit.steps, pruned={LOST: 1})


def is_lost_worker(error: Exception) -> bool:
    """Return whether an error means that a worker, not the unit's code, failed (`KilledWorker` is Dask's)."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ in (
        "KilledWorker",
        "FutureCancelledError",
    )

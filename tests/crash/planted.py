"""Mistakes that can be planted into the commit protocol, to show that its tests would find them.

    from planted import PLANTED, plant
    plant("no-fence")           in a process of its own: nothing takes it back

or ``OMNIGRAPH_PLANTED=no-fence`` for a program that calls ``plant_from_environment``. Each patches the engine of the process it
is called in; the engine itself knows nothing of it. A mistake belongs into every process of a run, as one in the code would be.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from lance import LanceDataset
from lance.dataset import Transaction
from omnigraph_engine.branches import branches
from omnigraph_engine.commit import coordinator, recovery
from omnigraph_engine.commit.classify import Standing, TableFacts, Verdict, classify, decide
from omnigraph_engine.commit.coordinator import Committed, Coordinator, Step
from omnigraph_engine.commit.sidecar import Sidecar, TableIntent
from omnigraph_engine.errors import ObjectNotFound, OmnigraphError, VersionConflict
from omnigraph_engine.failpoints import Failpoint, effect
from omnigraph_engine.manifest import dataset, publisher
from omnigraph_engine.manifest.dataset import Manifest
from omnigraph_engine.manifest.publisher import Publication
from omnigraph_engine.manifest.rows import TableVersion
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import heads
from omnigraph_engine.tables.exact import ExactCommit, manifest_path

ENVIRONMENT_VARIABLE = "OMNIGRAPH_PLANTED"

_engine: Any = recovery  # patched attributes are private, and a module's own functions look them up by name
_writer: Any = Coordinator


def plant(name: str) -> None:
    """From here on this process makes the mistake of that name."""
    PLANTED[name]()


def plant_from_environment() -> None:
    """Plants what ``OMNIGRAPH_PLANTED`` names, if anything."""
    name = os.environ.get(ENVIRONMENT_VARIABLE)
    if name:
        plant(name)


def arm_after_the_first_table() -> None:
    """The sidecar is written when the first table has moved already."""
    arm, commit_step = _writer._arm, _writer._commit_step

    def pretend(self: Any) -> None:
        self._held_since = time.monotonic()
        self._planted_armed = False

    def commit_then_arm(self: Any, intent: TableIntent, base_version: int, step: Step) -> None:
        commit_step(self, intent, base_version, step)
        if not self._planted_armed:
            self._planted_armed = True
            arm(self)

    _writer._arm, _writer._commit_step = pretend, commit_then_arm


def rebase_instead_of_exact() -> None:
    """A table commit lands on whatever HEAD is by then."""

    def commit(storage: Storage, path: str, dataset: LanceDataset, transaction: Transaction) -> ExactCommit:
        try:
            version = LanceDataset.commit(dataset, transaction, storage_options=storage.options or None).version
        except OSError as error:
            base = transaction.read_version
            raise VersionConflict(str(error), details={"expected": base, "actual": None}) from error
        target = manifest_path(path, version)
        return ExactCommit(version, storage.store_path(target), storage.size(target))

    heads.commit_exact = commit


def publish_before_all_landed() -> None:
    """The manifest is published when the first table has landed; the others follow."""
    update = _writer._update

    def guess(self: Any, intent: TableIntent) -> TableVersion:
        try:
            return update(self, intent)  # type: ignore[no-any-return]
        except ObjectNotFound:
            path = manifest_path(intent.ref(intent.final_version).path, intent.final_version)
            return TableVersion(
                intent.table_key, intent.identity, intent.final_version, intent.branch, intent.rows_after or 0, path
            )

    def run(self: Any) -> Committed:
        self._arm()
        first, *others = zip(self._changes, self._sidecar.tables, strict=True)
        for change, intent in (first, *others):
            for number, step in enumerate(change.steps):
                self._commit_step(intent, intent.expected_version + number, step)
            if (change, intent) == first:
                with effect(Failpoint.PUBLISH):
                    published = coordinator.publish(
                        self._storage, self._publication(), start=self._transaction.manifest
                    )
        self._disarm()
        return self._committed(published.commit)  # type: ignore[no-any-return]

    _writer._update, _writer.run = guess, run


def disarm_before_publish() -> None:
    """The sidecar is gone before the commit is visible."""
    publication = _writer._publication

    def disarm_first(self: Any) -> Publication:
        self._disarm()
        return publication(self)  # type: ignore[no-any-return]

    _writer._publication = disarm_first


def delete_on_unknown() -> None:
    """A writer that met an error drops its sidecar and reports the failure."""

    def drop(self: Any, error: OmnigraphError) -> Committed:
        self._disarm()
        raise error

    _writer._settled = drop


def fail_without_looking() -> None:
    """A writer whose answer was lost reports a failure without looking whether its commit is there."""

    def give_up(_self: Any, error: OmnigraphError) -> Committed:
        raise error

    _writer._settled = give_up


def ignore_abort() -> None:
    """A publish does not ask whether its operation was undone."""
    publication = _writer._publication
    _writer._publication = lambda self: replace(publication(self), operation_id=None)


def publish_blind() -> None:
    """A publish that lost the race goes on without checking its expectations again."""
    publisher.check_expectations = lambda _manifest, _publication: None


def skip_revalidation() -> None:
    """A publish takes no notice that a table its validation relied on has moved."""
    publication = _writer._publication
    _writer._publication = lambda self: replace(publication(self), read_set={})


def no_fence() -> None:
    """An undo leaves the tables alone that the operation had not reached."""
    undo = _engine._undo

    def undo_landed(storage: Storage, sidecar: Sidecar, intent: TableIntent) -> None:
        if heads.head_version(storage, intent.ref(intent.expected_version)) > intent.expected_version:
            undo(storage, sidecar, intent)

    _engine._undo = undo_landed


def undo_before_abort() -> None:
    """A recovery restores the tables first and publishes the abort afterwards."""
    stand, undo = _engine._stand, _engine._undo

    def stand_and_undo(storage: Storage, sidecar: Sidecar, manifest: Manifest) -> Any:
        found = stand(storage, sidecar, manifest)
        if found.verdict is Verdict.ROLL_BACK:
            for intent in sidecar.tables:
                undo(storage, sidecar, intent)
        return found

    _engine._stand = stand_and_undo


def no_undo_sidecar() -> None:
    """A recovery does not own its undo: only the writer's sidecar does, and the writer may delete that."""
    put = Storage.put

    def forget(self: Storage, path: str, data: bytes) -> None:
        if not path.endswith(".undo.json"):
            put(self, path, data)

    Storage.put = forget  # type: ignore[method-assign]


def unmarked_undo() -> None:
    """A recoverer cannot tell another's undo from a stranger's commit."""
    _engine._UNDO_NAMESPACE = uuid.uuid4()


def forget_before_converge() -> None:
    """A recovery deletes the sidecars before the restored tables are published."""
    converge = _engine._converge

    def forget_first(storage: Storage, sidecar: Sidecar) -> None:
        _engine._forget(storage, sidecar)
        converge(storage, sidecar)

    _engine._converge = forget_first


def forward_if_any_landed() -> None:
    """A recovery rolls forward as soon as one table has landed."""

    def eager(standings: Iterable[Standing], *, authority_holds: bool, **known: Any) -> Verdict:
        found = list(standings)
        verdict = decide(found, authority_holds=authority_holds, **known)
        return Verdict.ROLL_FORWARD if verdict is Verdict.ROLL_BACK and Standing.LANDED in found else verdict

    _engine.decide = eager


def forward_incomplete_chain() -> None:
    """A recovery takes a chain for landed when its first commit is there."""

    def hopeful(intent: TableIntent, facts: TableFacts) -> Standing:
        standing = classify(intent, facts)
        return Standing.LANDED if standing is Standing.INCOMPLETE else standing

    _engine.classify = hopeful


def forward_on_moved_read_set() -> None:
    """A recovery rolls forward though what the operation's validation relied on has changed."""
    _engine._authority_holds = lambda _storage, _sidecar, _manifest: True


def forward_without_transaction() -> None:
    """A recovery that rolls forward forgets the application's own number of the write."""
    intended = _engine._intended
    _engine._intended = lambda storage, sidecar: replace(intended(storage, sidecar), app_transaction=None)


def write_on_the_parents_line() -> None:
    """A branch takes the line that it sees for its own and does not fork it."""
    coordinator.owns = lambda _branch, _line: True


def begin_in_the_residue() -> None:
    """A branch whose name had a life before takes what that one left for its own beginning."""
    dataset.give_first_version = branches.give_first_version = lambda _storage, _info: None
    Manifest.holds = lambda _self, _start: True  # type: ignore[method-assign]


def forward_without_looking_at_the_line() -> None:
    """A recovery takes a line that an operation was to fork for forked and landed."""
    facts = _engine._facts

    def blind(storage: Storage, manifest: Manifest, intent: TableIntent) -> TableFacts:
        found = facts(storage, manifest, intent)
        return replace(found, above=list(intent.transactions)) if intent.forks else found  # type: ignore[no-any-return]

    _engine._facts = blind


def _named(*mistakes: Callable[[], None]) -> dict[str, Callable[[], None]]:
    return {mistake.__name__.replace("_", "-"): mistake for mistake in mistakes}


PLANTED: dict[str, Callable[[], None]] = _named(
    arm_after_the_first_table,
    rebase_instead_of_exact,
    publish_before_all_landed,
    disarm_before_publish,
    delete_on_unknown,
    fail_without_looking,
    ignore_abort,
    publish_blind,
    skip_revalidation,
    no_fence,
    undo_before_abort,
    no_undo_sidecar,
    unmarked_undo,
    forget_before_converge,
    forward_if_any_landed,
    forward_incomplete_chain,
    forward_on_moved_read_set,
    forward_without_transaction,
    write_on_the_parents_line,
    begin_in_the_residue,
    forward_without_looking_at_the_line,
)

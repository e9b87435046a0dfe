"""The suite rejects stores that break the contract: a test that cannot fail holds nothing."""

import asyncio
import inspect
import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from fairlead.storage import protocol
from fairlead.storage.protocol import Store
from fairlead.testing.contract import QuarantineContract, SharingContract, StoreContract
from fairlead.testing.durability import DurabilityContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import Crew, RaceContract, SharingRaceContract, ThreadCrew
from fairlead.testing.steps import Opening
from fairlead.testing.strategies import STEADY
from fairlead.testing.vandalism import Spoiler
from tests.conformance import wrong_adding, wrong_claiming, wrong_feeding, wrong_holding, wrong_reading
from tests.conformance.prompt_store import PromptStore
from tests.conformance.test_sqlite import FileVandal
from tests.conformance.wrong_quarantine import WRONG_FILES, WrongFile
from tests.conformance.wrong_store import WrongStore
from tests.conformance.wrong_stores import WRONG_STORES

CLAUSE = re.compile(r"\b[A-Z][1-9]\b")
UNSHRUNK = settings(STEADY, phases=[Phase.generate])
UNTIL_FOUND = settings(UNSHRUNK, max_examples=400)

PLAIN_MISTAKES = [
    wrong_adding.OverwritesAStoredId,
    wrong_adding.LosesTheKeyOfARunningTask,
    wrong_adding.KeepsTheKeyOfARemovedTask,
    wrong_adding.CountsExecutingTasks,
    wrong_claiming.IgnoresCapabilities,
    wrong_claiming.ExceedsTheLimit,
    wrong_claiming.BreaksTiesByTheNewest,
    wrong_claiming.ServesLaneAfterLane,
    wrong_claiming.DoesNotCountAttempts,
    wrong_holding.DropsOldProgress,
    wrong_holding.DoesNotTellOfCancel,
    wrong_holding.ResurrectsALostLease,
    wrong_holding.RefusesARepetition,
    wrong_holding.TakesAnySettleForARepetition,
    wrong_holding.FindsARemovedTask,
    wrong_reading.GetsInTheOrderOfIds,
    wrong_reading.AnswersAlarmsById,
    wrong_reading.MissesAPageBoundary,
    wrong_reading.TalliesKnownTasks,
    wrong_reading.CountsTheEnd,
    wrong_reading.PutsWhateverIsExpected,
    wrong_feeding.PublishesTheLastFirst,
    wrong_feeding.ReadsTheNewest,
]
"""What random calls, one after the other, must come upon; other mistakes need more luck, larger tasks or a race."""

LEASE_MISTAKES = [
    wrong_claiming.ClaimsEndedLeases,
    wrong_holding.ResurrectsALostLease,
    wrong_holding.ForgetsTheFence,
    wrong_holding.IgnoresTheHoldersVersion,
    wrong_holding.IgnoresBeats,
    wrong_holding.TakesAnySettleForARepetition,
    wrong_holding.RefusesARepetition,
]


class Contract(StoreContract, SharingContract, QuarantineContract):
    settings = UNSHRUNK
    patience = 0.3


class Patient(StoreContract):
    """For a store that is right, which must not be found wrong for being slow."""

    settings = UNSHRUNK


def laws(*contracts: type) -> dict[str, set[str]]:
    """The tests of contracts in the order they are written, each with the clauses that it names."""
    return {
        name: set(CLAUSE.findall(inspect.getdoc(law) or ""))
        for contract in contracts
        for part in contract.__mro__
        for name, law in vars(part).items()
        if name.startswith("test_")
    }


EVERY_CONTRACT = (
    StoreContract, SharingContract, QuarantineContract, RaceContract, SharingRaceContract, DurabilityContract,
)  # fmt: skip


def opening_of(make: Callable[[], Store]) -> Opening:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        yield make()

    return opened


def shared(store: Store) -> Opening:
    return opening_of(lambda: store)


def rejects(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


def check_law(name: str, make: Callable[[], Store], contract: StoreContract | None = None) -> None:
    async def check() -> None:
        await getattr(contract or Contract(), name)(make())

    asyncio.run(check())


@pytest.mark.parametrize("wrong", WRONG_STORES, ids=lambda store: store.__name__)
def test_a_store_that_breaks_a_clause_is_rejected_by_that_clauses_tests(wrong: type[WrongStore]) -> None:
    relevant = [name for name, clauses in laws(Contract).items() if wrong.breaks in clauses]
    assert any(rejects(partial(check_law, name, wrong)) for name in relevant)


@pytest.mark.parametrize("wrong", WRONG_FILES, ids=lambda store: store.__name__)
def test_a_file_that_breaks_a_clause_is_rejected_by_that_clauses_tests(wrong: type[WrongFile], tmp_path: Path) -> None:
    numbers = itertools.count()

    async def check(name: str) -> None:
        path = tmp_path / f"{next(numbers)}.db"
        store, vandal = wrong(path), FileVandal(path)
        law = getattr(Contract(), name)
        given = {"store": store, "vandal": vandal, "part": "spec", "spoiler": Spoiler(store, vandal, "spec", "emptied")}
        try:
            await law(**{word: value for word, value in given.items() if word in inspect.signature(law).parameters})
        finally:
            await store.close()

    relevant = [name for name, clauses in laws(Contract).items() if wrong.breaks in clauses]
    assert any(rejects(lambda name=name: asyncio.run(check(name))) for name in relevant)  # type: ignore[misc]


@pytest.mark.parametrize("name", [name for name, clauses in laws(Contract).items() if clauses & {"W2", "W3", "W4"}])
def test_a_memory_store_that_waits_and_claims_in_one_go_is_right(name: str) -> None:
    check_law(name, PromptStore, Patient())


@pytest.mark.parametrize("wrong", PLAIN_MISTAKES, ids=lambda store: store.__name__)
def test_a_wrong_store_does_not_agree_with_memory(wrong: type[WrongStore]) -> None:
    assert rejects(partial(compare_with_memory, opening_of(wrong), settings=UNTIL_FOUND))


@pytest.mark.parametrize("wrong", LEASE_MISTAKES, ids=lambda store: store.__name__)
def test_a_store_that_loses_track_of_leases_is_rejected_by_the_lease_machines(wrong: type[WrongStore]) -> None:
    assert rejects(partial(check_leases, opening_of(wrong), settings=UNTIL_FOUND))


@pytest.mark.parametrize(
    ("wrong", "race"),
    [
        (wrong_adding.ChecksKeysBeforeItAdds, RaceContract.test_of_racing_adds_of_one_key_exactly_one_is_added),
        (wrong_adding.LetsOneTooManyIn, RaceContract.test_racing_adds_never_exceed_a_bound_and_together_reach_it),
        (
            wrong_claiming.ChoosesBeforeItTakes,
            RaceContract.test_racing_claims_never_share_a_task_and_together_take_all,
        ),
        (wrong_holding.ChecksBeforeItChanges, RaceContract.test_of_racing_sweeps_one_answers_each_alarm),
        (
            wrong_claiming.ChoosesBeforeItTakes,
            RaceContract.test_racing_workers_sweepers_and_cancellers_lose_nothing,
        ),
        (wrong_reading.ChecksBeforeItPuts, RaceContract.test_racing_puts_lose_no_update),
        (
            wrong_feeding.NumbersBeforeItCommits,
            RaceContract.test_a_reader_of_the_feed_misses_nothing_of_racing_publishers,
        ),
    ],
    ids=lambda value: value.__name__,
)
def test_a_store_that_does_in_two_steps_what_is_one_loses_races(
    wrong: type[WrongStore], race: Callable[[RaceContract, Crew], None]
) -> None:
    assert rejects(lambda: race(RaceContract(), ThreadCrew(shared(wrong()))))


def test_a_store_that_claims_in_steps_is_right_as_long_as_no_one_else_runs() -> None:
    compare_with_memory(opening_of(wrong_claiming.ChoosingStore), settings=settings(UNSHRUNK, max_examples=15))


def test_every_clause_is_named_by_a_test() -> None:
    stated = set(re.findall(r"^    ([A-Z]\d)  ", inspect.getdoc(protocol) or "", re.MULTILINE))
    contracts = (
        StoreContract,
        SharingContract,
        QuarantineContract,
        RaceContract,
        SharingRaceContract,
        DurabilityContract,
    )
    assert set().union(*laws(*contracts).values()) == stated


def test_every_test_names_a_clause() -> None:
    tests = laws(*EVERY_CONTRACT)
    assert [name for name, clauses in tests.items() if not clauses] == []


def test_every_clause_that_one_process_can_break_has_a_wrong_store() -> None:
    wrong = {store.breaks for store in WRONG_STORES} | {store.breaks for store in WRONG_FILES}
    assert wrong == set().union(*laws(StoreContract, SharingContract, QuarantineContract).values())

"""The configuration of a program: from flags, FAIRLEAD_* variables, fairlead.toml and defaults, the first that says.

The file is fairlead.toml in the current folder, and in no folder above it: what a program does must not depend on files
that nobody sees from where it is started. The flag --config or the variable FAIRLEAD_CONFIG names another file, which
must then exist. An empty variable counts as not set; `none` unsets a key that can be none.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec
from msgspec import Struct

from fairlead.app.config_keys import KEYS, Key, Keys
from fairlead.core.errors import InvalidSettings, InvalidTask
from fairlead.core.identity import check_name
from fairlead.core.instant import Span, span
from fairlead.core.queues.admission import STANDARD, AdmissionSettings, Tiers
from fairlead.core.queues.limits import Rate
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.shares import shares_of
from fairlead.core.retry import Backoff
from fairlead.core.secret_mask import masked
from fairlead.core.settings import (
    CEILINGS_BY_PRIORITY,
    Defaults,
    DelayCeilings,
    PriorityDefaults,
    Retention,
    Rules,
    Settings,
)
from fairlead.core.validation import shown
from fairlead.storage.credentials import with_command
from fairlead.storage.url import with_option

FILE: Final = "fairlead.toml"
DEFAULT: Final = "default"
_PREFIX: Final = "FAIRLEAD_"

_SERVICE_LINK: Final = re.compile(
    r"FAIRLEAD_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes sets in every pod beside a service called fairlead or fairlead-…; none of it is meant for us.

FAIRLEAD_PORT is ours too: a URL is from Kubernetes, anything else is meant to be a port.
"""


class ConfigEntry(Struct, frozen=True):
    """One key as `fairlead config` shows it; passwords are masked."""

    key: str
    value: Any
    origin: str
    doc: str


class Configuration(Keys, frozen=True, kw_only=True):
    """The value of every key, as an attribute, and where each came from."""

    origins: Mapping[str, str]
    """By key: the flag, the variable, the file's path, or `default`."""

    def entries(self) -> Iterator[ConfigEntry]:
        """Every key, in the order of the table."""
        for key in KEYS.values():
            yield ConfigEntry(
                key.name, _shown(key, getattr(self, key.name)), self.origins.get(key.name, DEFAULT), key.doc
            )

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:  # type: ignore[override]
        return ((entry.key, entry.value) for entry in self.entries())

    def __repr__(self) -> str:
        return f"Configuration({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"

    @property
    def store_url(self) -> str:
        """The store's URL, which says too what gives the credentials."""
        return with_command(self.store, self.credentials_command)

    @property
    def journal_url(self) -> str | None:
        """The journal's URL, which says too what gives the credentials, and whether it is required."""
        if self.journal is None:
            return None
        url = with_command(self.journal, self.journal_credentials_command)
        return url if self.journal_required else with_option(url, "required", "off")

    def engine_settings(self) -> Settings:
        """What the engine needs of it."""
        return Settings(
            rules=Rules(
                retention=Retention(
                    completed=span(self.retention_completed_seconds),
                    cancelled=span(self.retention_cancelled_seconds),
                    failed=span(self.retention_failed_seconds),
                    dead_letter=span(self.retention_dead_letter_seconds),
                ),
                timeout_growth=self.timeout_growth,
                timeout_ceiling=span(self.timeout_ceiling_seconds),
                timeout_growth_after_failure=self.timeout_growth_after_failure,
                delay_ceilings=self._delay_ceilings(),
            ),
            defaults=Defaults(
                critical=_priority(self.defaults_critical_max_retries, self.defaults_critical_timeout_seconds),
                high=_priority(self.defaults_high_max_retries, self.defaults_high_timeout_seconds),
                medium=_priority(self.defaults_medium_max_retries, self.defaults_medium_timeout_seconds),
                low=_priority(self.defaults_low_max_retries, self.defaults_low_timeout_seconds),
                max_crashes=self.max_crashes,
                backoff=Backoff(
                    initial=span(self.backoff_initial_seconds),
                    factor=self.backoff_factor,
                    ceiling=span(self.backoff_max_seconds),
                    jitter=self.backoff_jitter,
                ),
            ),
            order=self._order(),
            lease=span(self.lease_seconds),
            heartbeat=span(self.heartbeat_seconds),
            grace=span(self.grace_seconds),
            key_retention=span(self.key_retention_seconds),
            payload_limit=self.payload_limit,
            queue_bound=self.queue_bound,
            sweep_interval=span(self.sweep_interval_seconds),
            dead_letter_alert=self.dead_letter_alert,
            dead_letter_alerts=_alerts("dead_letter_alerts", self.dead_letter_alerts, "a type", "send_mail:100"),
            admission_allow=tuple(_several(self.admission_allow or "")),
        )

    def admission_settings(self) -> AdmissionSettings:
        """What a server holds submits to."""
        standard = STANDARD if self.admission else AdmissionSettings()
        urgent, listed, rates = self.admission_urgent_above, self.admission_listed_above, self.admission_rates
        return AdmissionSettings(
            tiers=Tiers(
                standard.tiers.urgent_above if urgent is None else urgent,
                standard.tiers.listed_above if listed is None else listed,
            ),
            rates=standard.rates if rates is None else tuple(Rate.parse(each) for each in _several(rates)),
            in_flight=standard.in_flight if self.admission_in_flight is None else self.admission_in_flight,
        )

    def queue_alerts(self) -> tuple[tuple[str, int], ...]:
        """The queues whose dead letters a server alerts of, and from how many on."""
        return _alerts("dead_letter_queue_alerts", self.dead_letter_queue_alerts, "a queue", "mail:100")

    def _delay_ceilings(self) -> DelayCeilings:
        preset = CEILINGS_BY_PRIORITY if self.backoff_max_by_priority else DelayCeilings()
        return DelayCeilings(
            critical=_ceiling(self.backoff_max_critical_seconds, preset.critical),
            high=_ceiling(self.backoff_max_high_seconds, preset.high),
            medium=_ceiling(self.backoff_max_medium_seconds, preset.medium),
            low=_ceiling(self.backoff_max_low_seconds, preset.low),
        )

    def _order(self) -> Policy:
        match self.order_policy:
            case "promote":
                return Promote(
                    low=span(self.order_promote_low_seconds),
                    medium=span(self.order_promote_medium_seconds),
                    high=span(self.order_promote_high_seconds),
                    share=self.order_promote_share,
                )
            case "strict":
                return Strict()
            case "head_start":
                return HeadStart(
                    critical=span(self.order_head_start_critical_seconds),
                    high=span(self.order_head_start_high_seconds),
                    medium=span(self.order_head_start_medium_seconds),
                    low=span(self.order_head_start_low_seconds),
                )
            case "weighted":
                return Weighted(
                    critical=self.order_weighted_critical,
                    high=self.order_weighted_high,
                    medium=self.order_weighted_medium,
                    low=self.order_weighted_low,
                )
            case policy:
                assert_never(policy)


def _priority(max_retries: int, timeout_seconds: float) -> PriorityDefaults:
    return PriorityDefaults(max_retries=max_retries, timeout=span(timeout_seconds))


def _ceiling(said: float | None, preset: Span | None) -> Span | None:
    return preset if said is None else span(said)


def _several(written: str) -> list[str]:
    return [each.strip() for each in written.split(",") if each.strip()]


def _alerts(key: str, written: Iterable[str], what: str, example: str) -> tuple[tuple[str, int], ...]:
    return tuple(_alert(key, each, what, example) for each in written)


def _alert(key: str, written: str, what: str, example: str) -> tuple[str, int]:
    name, _, count = written.rpartition(":")
    if not name or not count.isdecimal() or int(count) < 1:
        raise InvalidSettings(f"{key} cannot be {shown(written)}; use {what} and a number: {example}")
    return name, int(count)


class _Said(Struct, frozen=True):
    """What one source says of one key."""

    key: Key
    value: object
    origin: str


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Configuration:
    """The configuration; raises InvalidSettings at the first thing that is wrong with it.

    A flag's name may be written with `-` or `.` for `_`; a flag of None was not given. Without `environ` and `folder`
    they are the process's own.
    """
    environ = os.environ if environ is None else environ
    folder = Path.cwd() if folder is None else folder
    given = {name.strip().lstrip("-"): value for name, value in (flags or {}).items() if value is not None}
    named = given.pop("config", None) or environ.get("FAIRLEAD_CONFIG") or None
    file = folder / (FILE if named is None else str(named))
    said: dict[str, _Said] = {}
    # From the weakest to the strongest; each is read whole, so a stronger one does not hide an unknown key.
    for source in (_from_file(file, must_exist=named is not None), _from_environment(environ), _from_flags(given)):
        said |= {one.key.name: one for one in source}
    values = {name: _converted(one) for name, one in said.items()}
    configuration = Configuration(**values, origins={name: one.origin for name, one in said.items()})
    _check_together(configuration)
    return configuration


def _check_together(configuration: Configuration) -> None:
    lease, heartbeat = configuration.lease_seconds, configuration.heartbeat_seconds
    if lease < 2 * heartbeat:
        origins = configuration.origins
        raise InvalidSettings(
            f"lease_seconds {lease:g} ({origins.get('lease_seconds', DEFAULT)}) is less than twice heartbeat_seconds "
            f"{heartbeat:g} ({origins.get('heartbeat_seconds', DEFAULT)}): one late heartbeat would lose the task; "
            f"raise the one or lower the other"
        )


def _from_flags(flags: Mapping[str, object]) -> Iterator[_Said]:
    for name, value in flags.items():
        known = KEYS.get(name.replace("-", "_").replace(".", "_"))
        if known is None:
            raise _unknown(f"flag --{name}", name, [key.flag for key in KEYS.values()], "--")
        yield _Said(known, value, known.flag)


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Said]:
    variables = {key.variable: key for key in KEYS.values()}
    for name, value in environ.items():
        if not name.startswith(_PREFIX) or name == "FAIRLEAD_CONFIG" or not value or _is_service_link(name, value):
            continue
        if name not in variables:
            raise _unknown(f"environment variable {name}", name, variables, _PREFIX)
        yield _Said(variables[name], value, name)


def _is_service_link(name: str, value: str) -> bool:
    return _SERVICE_LINK.fullmatch(name) is not None and (name != "FAIRLEAD_PORT" or "://" in value)


def _from_file(file: Path, *, must_exist: bool) -> Iterator[_Said]:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        if not must_exist:
            return
        raise InvalidSettings(
            f"the configuration file {file} does not exist; make it, or unset --config and FAIRLEAD_CONFIG"
        ) from None
    except OSError as error:
        raise InvalidSettings(f"the configuration file {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration file {file} is not valid TOML: {error}") from None
    seen: dict[str, str] = {}
    for path, value in _leaves((), document):
        name, written = "_".join(path), ".".join(path)
        if name not in KEYS:
            raise _unknown(f"key {written} in {file}", written, _spelled_like(path))
        if name in seen:
            raise InvalidSettings(f"{file} sets {name} twice, as {seen[name]} and as {written}; keep one of them")
        seen[name] = written
        yield _Said(KEYS[name], value, str(file))


def _leaves(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        if isinstance(value, dict) and "_".join((*path, name)) not in KEYS:
            yield from _leaves((*path, name), value)
        else:
            yield (*path, name), value


def _spelled_like(path: tuple[str, ...]) -> Iterable[str]:
    """The keys as they would be written in the tables of this path."""
    tables = "_".join(path[:-1]) + "_"
    for name in KEYS:
        inside = len(path) > 1 and name.startswith(tables)
        yield ".".join((*path[:-1], name.removeprefix(tables))) if inside else name


def _unknown(what: str, written: str, valid: Iterable[str], prefix: str = "") -> InvalidSettings:
    # For mistakes only, which are rare.
    import difflib

    # Without the prefix: what all share would make anything look near.
    bare = [name.removeprefix(prefix) for name in valid]
    nearest = difflib.get_close_matches(written.removeprefix(prefix), bare, n=1, cutoff=0.5)
    remedy = f"did you mean {prefix}{nearest[0]}? " if nearest else ""
    return InvalidSettings(f"unknown {what}; {remedy}`fairlead config` lists every key")


def _converted(said: _Said) -> Any:
    key, value = said.key, said.value
    if isinstance(value, str):
        value = value.strip()
        if key.optional and value.lower() == "none":
            return None
        if isinstance(key.default, tuple):
            value = [name.strip() for name in value.split(",") if name.strip()]
    # A file has types of its own, so there a number in quotes is a mistake.
    typed = said.origin not in (key.flag, key.variable)
    try:
        converted = msgspec.convert(value, key.type, strict=typed)
        if isinstance(key.default, tuple):
            _check_names(key, converted)
    except (msgspec.ValidationError, InvalidTask, InvalidSettings, ValueError) as error:
        reason = f": {error}" if isinstance(error, InvalidTask | InvalidSettings) else ""
        raise InvalidSettings(
            f"{key.name} cannot be {shown(_shown(key, said.value))} (from {said.origin}){reason}; use {key.remedy}"
        ) from None
    return converted


def _check_names(key: Key, names: tuple[str, ...]) -> None:
    if key.default and not names:
        raise ValueError("a list that must not be empty")
    for name in shares_of(names, None)[0] if key.name == "queues" else names:
        check_name(key.name, name)


def _shown(key: Key, value: Any) -> Any:
    """A key's value, fit to be shown."""
    return "***" if key.secret and value is not None else masked(value)

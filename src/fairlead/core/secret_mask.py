"""Secrets in what is shown: the one function that makes a URL, or a text that URLs stand in, fit to be read by others.

Whatever is shown, logged, raised or exported goes through here. Where it is not clear what is secret, more is hidden
rather than less: of a URL that cannot be read, all that may be a password.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from msgspec import Struct

HIDDEN: Final = "***"

_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_USERS: Final = re.compile(r"(?:rediss?|postgres(?:ql)?|smtps?|amqps?|mysql)(?:\+[\w.-]*)?", re.IGNORECASE)
"""The schemes in which a name, before the password, is no secret. In others it may be a token."""
_LOCAL: Final = frozenset({"sqlite", "memory", "file"})
"""The schemes without hosts and users."""
_FILE: Final = re.compile(r"/(?:[A-Za-z]:/)?[^:@]*@")
_USER: Final = re.compile(r"([\w.~+-]{0,64}):", re.ASCII)
_BAD_PORT: Final = re.compile(r"(:)(?![0-9]{1,5}(?:[,/?#&;]|$)|[,/?#]|$)[^\]]*\Z", re.DOTALL)
_END: Final = re.compile(r"[/?#]")
_PARAMETER: Final = re.compile(
    r"([?&;#\s]|\A)(?!//)([^?&;#\s=/]*)(\s{0,8}=\s{0,8})('(?:\\.|[^'\\])*'?|\"[^\"]*\"?|[^&;#\s]*)"
)
_BARE: Final = re.compile(r"([?&;#])([^?&;#=\s]+)(?=[&;#\s]|\Z)")
_PLAIN: Final = re.compile(r"(?:[\w.,:/+~\[\]-]|%2[Ff]|%3[Aa]|%5[BbDd]){0,200}", re.ASCII)
_HARMLESS: Final = frozenset({
    # Of stores, journals, servers and mail servers.
    "prefix", "timeout", "replicas", "ca", "verify", "schema", "prepare", "listen", "pool", "required", "rebuild",
    "remember", "hot_retention", "synchronous", "starttls", "sentinel_user", "sentinel_username", "db", "check_name",
    "server_name", "cert",
    # Of libpq.
    "host", "hostaddr", "port", "dbname", "user", "service", "application_name", "connect_timeout", "client_encoding",
    "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", "sslmode",
    "sslnegotiation", "sslrootcert", "sslcert", "sslcrl", "sslcrldir", "sslsni", "gssencmode", "krbsrvname",
    "channel_binding", "target_session_attrs", "load_balance_hosts", "requirepeer", "require_auth",
    "ssl_min_protocol_version", "ssl_max_protocol_version",
})  # fmt: skip
"""The parameters whose values may be shown; of every other nobody knows what it is."""

_WORD: Final = re.compile(r"\S+")
_QUOTED: Final = re.compile(r"([\"'])([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\"'\n]*)(?=\1)")
_BLANKS: Final = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://[\w.~+%-]{0,64}:)(?![0-9]{0,5}(?:[/?#,\s]|$))[^@\n]{1,200}@"
)
"""A password that has blanks in it, and is not quoted."""
_BEGIN: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://")
_STOP: Final = re.compile(r"[\"'<>`|{}()]")
_NAMES: Final = "passw(?:or)?d|passfile|passphrase|pwd|secret|token|api[_-]?key|credential"
_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_QUOTE: Final = r"'(?:\\.|[^'\\])*'|\"[^\"]*\""
_LITERAL: Final = r"[^\s&;,'\")\]}(\[.=]+(?=[\s&;,'\")\]}]|\Z)"
"""What is no call, index or attribute of a line of code."""
_NAMED: Final = re.compile(
    rf"((?:{_NAMES})[\w-]{{0,40}}(?:[\"']\s{{0,3}}:\s{{0,3}}(?=[\"'])|=(?!=)|\s{{0,3}}=\s{{0,3}}(?=[\"']|{_LITERAL})))"
    rf"({_QUOTE}|(?!\*\*\*)[^\s&;,'\")\]}}]+)",
    re.IGNORECASE,
)
_MARKS: Final = ("@", "=", "://", "fl_", "':", '":')
"""A text without any of these has nothing to hide."""
_API_KEY: Final = re.compile(r"\b(fl_[a-z2-7]{8}_)[a-z2-7]{32}\b")


def masked(value: Any) -> Any:
    """A URL fit to be shown: without what may be a password, a token or a key in it.

    Of a text that is no URL, what is set like a connection string or a login is hidden too; what is no text stays.
    """
    if not isinstance(value, str):
        return value
    found = _SCHEME.fullmatch(value)
    if found is None:
        return _unclear(value)
    scheme, rest = found[1], found[2]
    if scheme.lower() in _LOCAL and ("@" not in rest or _FILE.match(rest)):
        path, mark, query = rest.partition("?")
        return f"{scheme}://{path}{_parameters(mark + query)}"
    login, at, rest = rest.rpartition("@")
    user = _USER.match(login) if _USERS.fullmatch(scheme) else None
    login = "" if not at else f"{user[1]}:{HIDDEN}@" if user else f"{HIDDEN}@"
    return f"{scheme}://{login}{_parameters(_without_bad_port(rest))}"


def masked_text(text: str) -> str:
    """A text, such as a message, a log line or a traceback, without what may be secret in the URLs that it quotes."""
    if not any(mark in text for mark in _MARKS):
        return text
    text = _QUOTED.sub(lambda found: f"{found[1]}{masked(found[2])}", text)
    text = _BLANKS.sub(rf"\1{HIDDEN}@", text)
    text = _WORD.sub(lambda found: _word(found[0]), text)
    text = _NAMED.sub(rf"\1{HIDDEN}", text)
    return _API_KEY.sub(rf"\1{HIDDEN}", text)


def masked_all(value: Any) -> Any:
    """The same for all texts inside lists, tuples and mappings; what is none of these stays."""
    match value:
        case str():
            return masked_text(value)
        case dict():
            return {
                masked_all(name): HIDDEN if _is_secret(name, each) else masked_all(each) for name, each in value.items()
            }
        case list() | tuple():
            return [masked_all(each) for each in value]
        case _:
            return value


class Masked(Struct, frozen=True):
    """Values whose `repr` shows no secret: neither those that are named, nor what stands in a URL."""

    hidden: ClassVar[tuple[str, ...]] = ()
    """The fields that are never shown."""

    def __rich_repr__(self) -> Any:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            yield name, HIDDEN if name in self.hidden and value else masked_all(masked(value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


def _is_secret(name: object, value: object) -> bool:
    """Whether a value is a secret by its name."""
    return isinstance(name, str) and isinstance(value, str) and _NAME.search(name) is not None


def _word(word: str) -> str:
    """A word of a text, with the URLs and logins in it masked."""
    parts: list[str] = []
    at, last = 0, word.rfind("@")
    while found := _BEGIN.search(word, at):
        stop = _STOP.search(word, max(found.end(), last + 1))
        end = len(word) if stop is None else stop.start()
        parts += word[at : found.start()], masked(word[found.start() : end])
        at = end
    parts.append(_login(word[at:]) if last >= at else word[at:])
    return "".join(parts)


def _login(word: str) -> str:
    """A word of a text, without the password of a `user:password@host` in it."""
    before, _, after = word.rpartition("@")
    quote = max(before.rfind('"'), before.rfind("'")) + 1
    user, colon, _ = before[quote:].partition(":")
    return f"{before[:quote]}{user}:{HIDDEN}@{after}" if colon else word


def _unclear(text: str) -> str:
    """What is no URL: a connection string, a URL without its scheme, or nothing of the kind."""
    before, at, after = text.rpartition("@")
    if at and (":" in before or "=" in before or "/" in before):
        text = f"{HIDDEN}@{after}"
    return masked_text(_parameters(text)) if "=" in text else text


def _without_bad_port(rest: str) -> str:
    """Without what stands where a port does and is none: a password whose host was forgotten, or its beginning."""
    end = _END.search(rest)
    authority = rest if end is None else rest[: end.start()]
    bad = _BAD_PORT.search(authority.rpartition("]")[2])
    if bad is None:
        return rest
    return f"{authority[: len(authority) - len(bad[0])]}:{HIDDEN}"


def _parameters(text: str) -> str:
    """With the values of harmless parameters only."""
    text = _PARAMETER.sub(_parameter, text)
    return _BARE.sub(lambda found: found[0] if found[2].lower() in _HARMLESS else f"{found[1]}{HIDDEN}", text)


def _parameter(found: re.Match[str]) -> str:
    mark, name, equals, value = found.groups()
    if name.lower() in _HARMLESS and _PLAIN.fullmatch(value):
        return found[0]
    shown = name if re.fullmatch(r"[A-Za-z_]\w{0,40}", name, re.ASCII) else HIDDEN
    return f"{mark}{shown}{equals}{HIDDEN}"

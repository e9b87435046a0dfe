"""The `email` handler: one message through the operator's mail server.

What may pass (no connection, a 4xx answer, a refused login) is retried; what the server refuses for good (a 5xx answer
to this message) fails the task. A message that some recipients got and others did not counts as sent, because a retry
would send it to the first again; the result names those who were refused.
"""

from __future__ import annotations

import contextlib
import email.errors
import email.policy
import email.utils
import re
import smtplib
import ssl
from collections.abc import Iterable
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.hosts import host_of
from fairlead.core.retry import Reject, Retry
from fairlead.core.secret_mask import Masked, masked
from fairlead.core.validation import check_login

_TIMEOUT: Final = 30.0
"""For each answer of the mail server, in seconds."""
_PORTS: Final = {"smtp": 587, "smtps": 465}
_EXAMPLE: Final = "smtp://user:password@host:587 or smtps://user:password@host:465"
_POLICY: Final = email.policy.SMTP.clone(cte_type="7bit")
"""Every server takes seven bits; smtplib would send eight without asking."""
_SWITCH: Final = {"true": True, "false": False}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What ends a line somewhere, or belongs into no header."""


class Receipt(Struct, frozen=True):
    """What the mail server took."""

    message_id: str
    accepted: list[str]
    refused: dict[str, str]
    """By recipient: what the server said."""


class MailServer(Masked, frozen=True, kw_only=True):
    """How to reach the mail server."""

    host: str
    port: int
    tls: bool
    """TLS from the first byte."""
    starttls: bool
    """Plain at first, then TLS before anything is told."""
    user: str | None = None
    password: str = ""
    hidden = ("user", "password")


def parse_smtp_url(url: str) -> MailServer:
    """The mail server that smtp_url names; raises InvalidSettings, without telling the password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidSettings(f"smtp_url is not a URL: its host or port is not valid; use {_EXAMPLE}") from None
    check_login("smtp_url", url)
    if parts.scheme not in _PORTS:
        raise InvalidSettings(f"smtp_url has the scheme {parts.scheme!r}; use {_EXAMPLE}")
    if not host or not host_of(parts.netloc.rpartition("@")[2]) or port == 0 or parts.path.strip("/") or parts.fragment:
        raise InvalidSettings(f"smtp_url needs a host, may have a port, and has nothing after them; use {_EXAMPLE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    wanted = options.pop("starttls", "true" if parts.scheme == "smtp" else "false").lower()
    if options:
        raise InvalidSettings(f"smtp_url has the unknown option {next(iter(options))!r}; the only one is starttls")
    if wanted not in _SWITCH or (parts.scheme == "smtps" and _SWITCH[wanted]):
        raise InvalidSettings(
            f"smtp_url {masked(url)!r} has a wrong starttls; use true or false with smtp://, and none with smtps://"
        )
    return MailServer(
        host=host,
        port=port or _PORTS[parts.scheme],
        tls=parts.scheme == "smtps",
        starttls=_SWITCH[wanted],
        user=None if parts.username is None else unquote(parts.username),
        password=unquote(parts.password or ""),
    )


class Mailer:
    """Sends email under the operator's settings."""

    def __init__(
        self,
        smtp_url: str | None,
        email_from: str | None,
        *,
        timeout: float = _TIMEOUT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._server = None if smtp_url is None else parse_smtp_url(smtp_url)
        self._timeout = timeout
        self._tls = tls
        try:
            self._sender = None if email_from is None else _address("email_from", email_from)
        except Reject as error:
            raise InvalidSettings(str(error)) from None

    def email(
        self,
        to: str | list[str],
        subject: str,
        text: str | None = None,
        html: str | None = None,
        cc: str | list[str] | None = None,
        bcc: str | list[str] | None = None,
        reply_to: str | None = None,
    ) -> Receipt:
        """Send a message as text, as HTML, or as both for the reader to choose from."""
        if self._server is None or self._sender is None:
            missing = "smtp_url" if self._server is None else "email_from"
            raise Reject(f"this worker cannot send email because {missing} is not set; set it and replay the task")
        seen = {"To": _addresses("to", to), "Cc": _addresses("cc", cc)}
        recipients = [address.addr_spec for addresses in seen.values() for address in addresses]
        recipients += [address.addr_spec for address in _addresses("bcc", bcc)]
        if not recipients:
            raise Reject("the message has no recipient; name one in to, cc or bcc")
        message = _message(self._sender, subject, text, html)
        for header, addresses in seen.items():
            if addresses:
                message[header] = addresses
        if reply_to is not None:
            message["Reply-To"] = [_address("reply_to", reply_to)]
        _check_head(message)
        recipients = list(dict.fromkeys(recipients))
        refused = self._send(self._server, message, self._sender.addr_spec, recipients)
        accepted = [recipient for recipient in recipients if recipient not in refused]
        return Receipt(str(message["Message-ID"]), accepted, refused)

    def _send(self, server: MailServer, message: EmailMessage, sender: str, recipients: list[str]) -> dict[str, str]:
        """The refused recipients, at least one being accepted."""
        try:
            client = self._open(server)
        except smtplib.SMTPNotSupportedError as error:
            raise Reject(
                f"the mail server {server.host} does not offer what smtp_url asks for ({error}); only if the way to it "
                f"is safe, add ?starttls=false"
            ) from None
        # Whatever is wrong before the message is offered is not the message's fault, so even a 5xx may pass.
        except (smtplib.SMTPException, OSError) as error:
            raise Retry(f"the mail server {server.host} cannot be used: {_said(error)}") from None
        try:
            answers = client.send_message(message, sender, recipients)
        except smtplib.SMTPNotSupportedError as error:
            raise Reject(f"the mail server {server.host} cannot take this message: {error}") from None
        except smtplib.SMTPRecipientsRefused as error:
            refusals = "; ".join(f"{name}: {_answer(*answer)}" for name, answer in error.recipients.items())
            kind = Reject if all(code >= 500 for code, _ in error.recipients.values()) else Retry
            raise kind(f"the mail server {server.host} refused every recipient: {refusals}") from None
        except smtplib.SMTPResponseException as error:
            kind = Reject if error.smtp_code >= 500 else Retry
            raise kind(f"the mail server {server.host} refused the message: {_said(error)}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise Retry(f"the mail server {server.host} broke off: {_said(error)}") from None
        finally:
            # The message is taken or not by now; how the goodbye goes must not change that.
            with contextlib.suppress(smtplib.SMTPException, OSError):
                client.quit()
            client.close()
        return {name: _answer(*answer) for name, answer in answers.items()}

    def _open(self, server: MailServer) -> smtplib.SMTP:
        if self._tls is None and (server.tls or server.starttls):
            self._tls = ssl.create_default_context()
        client: smtplib.SMTP
        if server.tls:
            client = smtplib.SMTP_SSL(server.host, server.port, timeout=self._timeout, context=self._tls)
        else:
            client = smtplib.SMTP(server.host, server.port, timeout=self._timeout)
        try:
            if server.starttls:
                client.starttls(context=self._tls)
            if server.user is not None:
                client.login(server.user, server.password)
        except BaseException:
            client.close()
            raise
        return client


def _message(sender: Address, subject: str, text: str | None, html: str | None) -> EmailMessage:
    message = EmailMessage(policy=_POLICY)
    try:
        message["From"] = [sender]
        message["Subject"] = subject
        message["Date"] = email.utils.localtime()
        message["Message-ID"] = email.utils.make_msgid(domain=sender.domain)
        if text is not None:
            message.set_content(text)
        if html is not None:
            (message.set_content if text is None else message.add_alternative)(html, subtype="html")
    except ValueError as error:
        raise Reject(f"the message cannot be written: {error}; take line breaks and broken characters out") from None
    if text is None and html is None:
        raise Reject("the message has no content; give text, html or both")
    return message


def _check_head(message: EmailMessage) -> None:
    """Refuse a message whose head would say more than it was given.

    A text may hold encoded words (`=?utf-8?q?…?=`), which are decoded when it is made a header: line breaks that come
    out of them would begin headers, or the body, of the submitter's choice.
    """
    for name, value in message.items():
        if _CONTROL.search(str(value)):
            raise Reject(
                f"the {name} has a line break or a control character in an encoded word; write the text as it is, "
                f"without =?…?="
            )
    try:
        head, _, _ = message.as_bytes().partition(b"\r\n\r\n")
    except (ValueError, email.errors.MessageError) as error:
        raise Reject(f"the message cannot be written: {error}; take line breaks and encoded words out") from None
    lines = head.split(b"\r\n")
    begun = [line.partition(b":")[0].decode("ascii", "replace") for line in lines if not line.startswith((b" ", b"\t"))]
    if begun != list(message.keys()) or any(b"\r" in line or b"\n" in line for line in lines):
        raise Reject("the message's headers would not be those that it was given; take encoded words (=?…?=) out")


def _addresses(field: str, given: str | Iterable[str] | None) -> list[Address]:
    return [_address(field, text) for text in ([given] if isinstance(given, str) else given or ())]


def _address(field: str, text: str) -> Address:
    """One address: `name@example.com` or `Name <name@example.com>`."""
    try:
        header = _POLICY.header_factory("to", text)
        (group,) = header.groups
        (address,) = group.addresses
        # A dot in a name without quotes is obsolete, and common.
        wrong = any(not isinstance(defect, email.errors.ObsoleteHeaderDefect) for defect in header.defects)
        # Encoded words have been decoded by now.
        wrong = wrong or any(map(_CONTROL.search, (address.display_name, address.username, address.domain)))
        if wrong or group.display_name is not None or not text.isprintable():
            raise ValueError
        return Address(address.display_name, address.username, address.domain.encode("idna").decode("ascii"))
    # IndexError: the parser's own way of refusing an address that ends too soon.
    except (ValueError, IndexError, email.errors.MessageError):
        raise Reject(
            f"{field} {text!r} is not an email address that can be used; write name@example.com or "
            f"Name <name@example.com>, with nothing but ASCII before the @"
        ) from None


def _said(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        return _answer(error.smtp_code, error.smtp_error)
    return f"{type(error).__name__}: {error}"


def _answer(code: int, text: bytes | str) -> str:
    return f"{code} {text.decode('utf-8', 'replace') if isinstance(text, bytes) else text}"

"""The email handler, against a real SMTP server."""

from __future__ import annotations

import base64
import contextlib
import email
import email.policy
from email.message import EmailMessage
from typing import Any

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.retry import Reject, Retry
from fairlead.worker.builtin.email import Mailer, MailServer, Receipt, parse_smtp_url
from tests.worker.builtin.servers import Certificate, Mail, SmtpServer, closed_port, silent_port

FROM = "Fair Lead <lead@example.com>"


def mailer(server: SmtpServer, **options: Any) -> Mailer:
    return Mailer(f"smtp://127.0.0.1:{server.port}?starttls=false", FROM, **options)


def send(says: dict[str, str] | None = None, **message: Any) -> tuple[Receipt, Mail]:
    """What the handler returned, and what the server got."""
    asked = {"to": "ada@example.com", "subject": "Hello", "text": "Hi"} | message
    with SmtpServer(says) as server:
        receipt = mailer(server).email(**asked)
    (mail,) = server.mails
    return receipt, mail


def parsed(mail: Mail) -> EmailMessage:
    return email.message_from_string(mail.data, policy=email.policy.default)


# Messages


def test_a_message_arrives_as_written() -> None:
    receipt, mail = send(
        to=["ada@example.com", "Bob B. <bob@example.com>"], subject="Grüße", text="Hallo Ünter\n.\nEnde"
    )

    message = parsed(mail)
    assert mail.sender == "lead@example.com"
    assert mail.recipients == ["ada@example.com", "bob@example.com"]
    assert message["From"] == FROM
    assert message["To"] == 'ada@example.com, "Bob B." <bob@example.com>'
    assert message["Subject"] == "Grüße"
    assert message["Date"]
    assert message["Message-ID"] == receipt.message_id
    assert message.get_content().splitlines() == ["Hallo Ünter", ".", "Ende"]
    assert receipt.accepted == ["ada@example.com", "bob@example.com"]
    assert receipt.refused == {}


def test_html_may_stand_alone() -> None:
    _, mail = send(text=None, html="<p>Hi</p>")

    assert parsed(mail).get_content_type() == "text/html"


def test_text_and_html_are_alternatives() -> None:
    _, mail = send(html="<p>Hi</p>")

    message = parsed(mail)
    assert message.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]


def test_copies_are_named_and_blind_copies_are_not() -> None:
    _, mail = send(cc="cy@example.com", bcc=["di@example.com", "ada@example.com"], reply_to="Desk <desk@example.com>")

    message = parsed(mail)
    assert mail.recipients == ["ada@example.com", "cy@example.com", "di@example.com"]
    assert (message["Cc"], message["Reply-To"]) == ("cy@example.com", "Desk <desk@example.com>")
    assert "di@example.com" not in mail.data


BREAKS = {
    "q": "=?utf-8?q?Hello=0d=0aBcc:_eve@example.com?=",
    "b": "=?utf-8?b?" + base64.b64encode(b"Hello\r\nBcc: eve@example.com").decode() + "?=",
    "body": "=?utf-8?q?Hello=0d=0a=0d=0aPay_eve?=",
    "lf": "=?utf-8?q?Hello=0aBcc:_eve@example.com?=",
    "cr": "=?utf-8?q?Hello=0dBcc:_eve@example.com?=",
    "nul": "=?utf-8?q?Hello=00?=",
    "separator": "=?utf-8?q?Hello=E2=80=A8Bcc:?=",
    "next line": "=?latin-1?q?Hello=85Bcc:?=",
    "utf-16": "=?utf-16?b?" + base64.b64encode("Hello\r\nBcc: eve@example.com".encode("utf-16")).decode() + "?=",
    "utf-7": "=?utf-7?q?Hello+AA0ACg-Bcc:?=",
    "two words": "=?utf-8?q?Hello=0d?= =?utf-8?q?=0aBcc:_eve@example.com?=",
    "in the middle": "Hello =?utf-8?q?you=0d=0aBcc:_eve@example.com?= there",
}


@pytest.mark.parametrize("word", BREAKS.values(), ids=BREAKS)
def test_a_line_break_that_an_encoded_word_hides_is_refused_in_every_header(word: str) -> None:
    named = f"{word} <ada@example.com>"
    quoted = f'"{word}" <ada@example.com>'
    with SmtpServer() as server:
        for message in (
            {"subject": word}, {"to": named}, {"to": quoted}, {"to": ["bob@example.com", named]}, {"cc": named},
            {"bcc": named}, {"reply_to": named}, {"reply_to": quoted}, {"to": f"{word}@example.com"},
        ):  # fmt: skip
            asked = {"to": "ada@example.com", "subject": "Hello", "text": "Hi"} | message
            with pytest.raises(Reject):
                mailer(server).email(**asked)
        assert server.mails == []
    with pytest.raises(InvalidSettings):
        Mailer("smtp://127.0.0.1", named)


@pytest.mark.parametrize("word", BREAKS.values(), ids=BREAKS)
@pytest.mark.parametrize("field", ["subject", "to", "reply_to"])
def test_one_that_is_hidden_twice_begins_no_header(word: str, field: str) -> None:
    twice = f"=?utf-8?b?{base64.b64encode(word.encode()).decode()}?="
    text = twice if field == "subject" else f"{twice} <ada@example.com>"
    asked = {"to": "ada@example.com", "subject": "Hello", "text": "Hi"} | {field: text}
    with SmtpServer() as server:
        with contextlib.suppress(Reject):
            mailer(server).email(**asked)
        for mail in server.mails:
            assert set(parsed(mail).keys()) <= ASKED
            assert mail.recipients == ["ada@example.com"]


ASKED = {
    "From", "To", "Reply-To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type",
    "Content-Transfer-Encoding",
}  # fmt: skip


@pytest.mark.parametrize(
    "subject",
    ["=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "50 % =? what?", "a\u00a0b \U0001f468\u200d\U0001f469", "tab\there", "x" * 900],
)
def test_any_other_subject_arrives(subject: str) -> None:
    _, mail = send(subject=subject)
    message = parsed(mail)
    assert set(message.keys()) <= ASKED
    assert message["Subject"].split() == (["Grüße"] if "Gr=C3" in subject else subject.split())


def test_a_domain_in_any_script_is_understood() -> None:
    assert send(to="Jörg <ada@bücher.example>")[1].recipients == ["ada@xn--bcher-kva.example"]


def test_a_long_list_of_recipients_is_folded() -> None:
    _, mail = send(to=[f"Person Number {number} <person{number}@example.com>" for number in range(50)])

    assert len(parsed(mail)["To"].addresses) == 50
    assert max(len(line) for line in mail.data.splitlines()) <= 998


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"subject": "Hello\r\nBcc: eve@example.com"}, "cannot be written"),
        ({"subject": "Hello\nBcc: eve@example.com"}, "cannot be written"),
        ({"subject": "\ud800"}, "cannot be written"),
        ({"to": "ada@example.com\r\nBcc: eve@example.com"}, "to .* is not an email address"),
        ({"to": "ada@example.com>\r\nDATA"}, "to .* is not an email address"),
        ({"to": "Ada\n <ada@example.com>"}, "to .* is not an email address"),
        ({"to": "ada@example.com, eve@example.com"}, "to .* is not an email address"),
        ({"to": "ada"}, "to 'ada' is not an email address"),
        ({"to": ""}, "to '' is not an email address"),
        ({"to": "@example.com"}, "to '@example.com' is not an email address"),
        ({"to": "ada@"}, "to 'ada@' is not an email address"),
        ({"to": "ada@example.com eve"}, "to .* is not an email address"),
        ({"cc": ["ada@example.com", "b d@example.com"]}, "cc .* is not an email address"),
        ({"to": "ünter@example.com"}, "nothing but ASCII before the @"),
        ({"to": "friends: ada@example.com;"}, "to .* is not an email address"),
        ({"to": "=?utf-8?q?a=0d=0aBcc:_eve?= <ada@example.com>"}, "to .* is not an email address"),
        ({"to": "ada@example.com <eve@example.com>"}, "to .* is not an email address"),
        ({"bcc": "x"}, "bcc 'x' is not an email address"),
        ({"reply_to": "x"}, "reply_to 'x' is not an email address"),
        ({"to": []}, "no recipient"),
        ({"text": None}, "no content"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_before_it_is_offered(message: dict[str, Any], says: str) -> None:
    asked = {"to": "ada@example.com", "subject": "Hello", "text": "Hi"} | message

    with SmtpServer() as server, pytest.raises(Reject, match=says):
        mailer(server).email(**asked)

    assert not server.commands


@pytest.mark.parametrize(
    ("url", "sender", "missing"),
    [(None, FROM, "smtp_url"), ("smtp://host", None, "email_from"), (None, None, "smtp_url")],
)
def test_without_settings_the_task_is_refused_with_their_name(
    url: str | None, sender: str | None, missing: str
) -> None:
    with pytest.raises(Reject, match=f"{missing} is not set"):
        Mailer(url, sender).email("ada@example.com", "Hello", "Hi")


# Answers of the server


@pytest.mark.parametrize(
    ("says", "kind", "message"),
    [
        ({"greeting": "421 busy"}, Retry, "cannot be used: 421 busy"),
        ({"greeting": "554 closed"}, Retry, "cannot be used: 554 closed"),
        ({"MAIL": "451 later"}, Retry, "refused the message: 451 later"),
        ({"MAIL": "550 spoofed"}, Reject, "refused the message: 550 spoofed"),
        ({"RCPT": "450 greylisted"}, Retry, "every recipient: ada@example.com: 450 greylisted"),
        ({"RCPT": "550 unknown"}, Reject, "every recipient: ada@example.com: 550 unknown"),
        ({"DATA": "452 full"}, Retry, "refused the message: 452 full"),
        ({"DATA": "554 no"}, Reject, "refused the message: 554 no"),
        ({"END": "451 later"}, Retry, "refused the message: 451 later"),
        ({"END": "552 too large"}, Reject, "refused the message: 552 too large"),
        ({"MAIL": ""}, Retry, "broke off"),
        ({"DATA": ""}, Retry, "broke off"),
    ],
)
def test_what_may_pass_is_retried_and_the_rest_fails_for_good(
    says: dict[str, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        send(says)


def test_one_recipient_for_now_and_one_for_good_is_retried() -> None:
    says = {"RCPT TO:<ada@": "550 unknown", "RCPT TO:<bob@": "450 later"}

    with pytest.raises(Retry, match="refused every recipient"):
        send(says, to=["ada@example.com", "bob@example.com"])


def test_a_message_that_some_got_is_sent_and_the_others_are_named() -> None:
    receipt, mail = send({"RCPT TO:<bob@": "450 later"}, to=["ada@example.com", "bob@example.com"])

    assert mail.recipients == ["ada@example.com"]
    assert receipt.accepted == ["ada@example.com"]
    assert receipt.refused == {"bob@example.com": "450 later"}


@pytest.mark.parametrize("goodbye", ["", "500 what", "421 busy"])
def test_a_bad_goodbye_does_not_unsend_the_message(goodbye: str) -> None:
    receipt, _ = send({"QUIT": goodbye})

    assert receipt.accepted == ["ada@example.com"]


def test_no_connection_is_retried() -> None:
    with pytest.raises(Retry, match="cannot be used: ConnectionRefusedError"):
        Mailer(f"smtp://127.0.0.1:{closed_port()}", FROM).email("ada@example.com", "Hello", "Hi")


def test_a_silent_server_is_timed_out_and_retried() -> None:
    with silent_port() as port, pytest.raises(Retry, match=r"cannot be used: .*timed out"):
        Mailer(f"smtp://127.0.0.1:{port}", FROM, timeout=0.05).email("ada@example.com", "Hello", "Hi")


# Login and TLS


def test_the_login_comes_from_the_url() -> None:
    with SmtpServer() as server:
        url = f"smtp://a%40b:p%3Aw@127.0.0.1:{server.port}?starttls=false"
        Mailer(url, FROM).email("ada@example.com", "Hello", "Hi")

    assert "AUTH PLAIN AGFAYgBwOnc=" in server.commands


def test_a_refused_login_is_retried_and_does_not_tell_the_password() -> None:
    with SmtpServer({"AUTH": "535 wrong"}) as server, pytest.raises(Retry, match="cannot be used: 535") as raised:
        url = f"smtp://ada:hunter2@127.0.0.1:{server.port}?starttls=false"
        Mailer(url, FROM).email("ada@example.com", "Hello", "Hi")

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("smtps", [False, True])
def test_mail_goes_under_tls_before_anything_is_told(smtps: bool, certificate: Certificate) -> None:
    with SmtpServer(tls=certificate.server, smtps=smtps) as server:
        url = f"{'smtps' if smtps else 'smtp'}://ada:pw@127.0.0.1:{server.port}"
        Mailer(url, FROM, tls=certificate.client).email("ada@example.com", "Hello", "Hi")

    assert server.mails[0].under_tls
    if not smtps:
        assert server.commands[1] == "STARTTLS"


@pytest.mark.parametrize("smtps", [False, True])
def test_a_certificate_that_nobody_vouches_for_gets_nothing(smtps: bool, certificate: Certificate) -> None:
    with SmtpServer(tls=certificate.server, smtps=smtps) as server, pytest.raises(Retry, match="certificate verify"):
        url = f"{'smtps' if smtps else 'smtp'}://ada:pw@127.0.0.1:{server.port}"
        Mailer(url, FROM).email("ada@example.com", "Hello", "Hi")

    assert not [command for command in server.commands if command.startswith(("AUTH", "MAIL"))]


def test_a_server_without_starttls_gets_nothing_unless_the_url_says_so() -> None:
    with SmtpServer() as server, pytest.raises(Reject, match="starttls=false"):
        Mailer(f"smtp://ada:pw@127.0.0.1:{server.port}", FROM).email("ada@example.com", "Hello", "Hi")

    assert not [command for command in server.commands if command.startswith(("AUTH", "MAIL"))]


# The URL


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://host", MailServer(host="host", port=587, tls=False, starttls=True)),
        ("smtp://host:25/?starttls=false", MailServer(host="host", port=25, tls=False, starttls=False)),
        ("smtps://host", MailServer(host="host", port=465, tls=True, starttls=False)),
        (
            "smtps://u:p%2F@[::1]:466",
            MailServer(host="::1", port=466, tls=True, starttls=False, user="u", password="p/"),
        ),
    ],
)
def test_the_url_names_a_mail_server(url: str, expected: MailServer) -> None:
    assert parse_smtp_url(url) == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mail.example.com:587", "scheme"),
        ("https://hunter2@host", "scheme 'https'"),
        ("smtp://", "needs a host"),
        ("smtp://:hunter2@", "needs a host"),
        ("smtp://host:0", "needs a host"),
        ("smtp://host:99999", "not a URL"),
        ("smtp://host/inbox", "nothing after"),
        ("smtp://host?tls=yes", "unknown option 'tls'"),
        ("smtp://host?starttls=perhaps", "starttls=perhaps"),
        ("smtps://host?starttls=true", "none with smtps"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_without_telling_the_password(url: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says) as raised:
        Mailer(url, FROM)

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("sender", ["nobody", "a@b\r\nBcc: c@d", ""])
def test_a_sender_that_is_no_address_is_refused(sender: str) -> None:
    with pytest.raises(InvalidSettings, match=r"email_from .* is not an email address"):
        Mailer("smtp://host", sender)

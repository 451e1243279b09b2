"""Rights to read documents, and the identity of who asks.

A document names its *readers*: askers, groups that the owner puts askers into, and people and groups of a company that
signs for its people, ``company/person`` and ``company:group``. An owner that has joined the federation chose its name
itself, and is the asker ``owner/NAME``, which is no other asker, group or person. A document that names none may be
read by every asker, or by those that the owner's setting ``readers`` names. Who may not read a document does not find
it: it is left out where candidates are chosen, and its words count in no frequency of the owner's own.

A company is an asker whose public key the owner knows. It signs who asks (Ed25519): name, groups, and the last day on
which that is so. An owner believes it about its own people and nothing else.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedrank.core.errors import ConfigError, FormatError, WireError
from fedrank.core.trees import Json
from fedrank.texts.served.documents import Document
from fedrank.texts.served.envelopes import key_text

#: Reader that every asker is; and one that none is, of a document whose readers are said and are none.
OPEN, CLOSED = "*", "!"
#: Most characters of all readers of a document, and groups of a person.
_LONGEST, MOST_GROUPS = 4000, 64
_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_READER = re.compile(r"(owner/)?[\w.@-]{1,64}([/:][\w.@-]{1,64})?", re.ASCII)
#: What stands before the names of owners that have joined, as askers; no other asker is named as the part before ``/``.
JOINED = "owner/"
_PREFIX = b"fedrank person 1\n"


def is_name(name: Any) -> bool:
    """True of a text that can name an asker, a person or a group: 1 to 64 letters, digits and ``. _ - @``."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_names(*names: str) -> None:
    """Refuse names that cannot be those of askers, people or groups.

    Raises:
        ConfigError: One cannot.
    """
    for name in names:
        if not is_name(name):
            raise ConfigError(f"names have 1 to 64 letters, digits and . _ - @, got {name!r:.70}.")


def readers_text(given: Any) -> str:
    """Readers as they are kept, names with spaces between; of none it is :data:`CLOSED`.

    Args:
        given: A text with spaces or commas between the names, or a list of names.

    Raises:
        FormatError: A name cannot be one, or there are too many.
    """
    names = given.replace(",", " ").split() if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"readers must be names with spaces between, or a list of names, got {given!r:.60}.")
    if OPEN in names:
        return ""
    wrong = next((name for name in names if name != CLOSED and not _READER.fullmatch(name)), None)
    text = " ".join(dict.fromkeys(names)) or CLOSED
    if wrong is not None or len(text) > _LONGEST:
        what = f"a reader's name has letters, digits and . _ - @, got {wrong!r:.70}" if wrong else "there are too many"
        raise FormatError(f"readers: {what}.")
    return text


def readers_of(document: Document) -> list[str]:
    """The names that a document's readers have; :data:`OPEN` alone where it names none."""
    return document.about.get("readers", "").split() or [OPEN]


def may_read(document: Document, who: Collection[str]) -> bool:
    """True if one of these identities (:attr:`Asking.readers`) may read a document."""
    return any(name in who for name in readers_of(document))


def new_key() -> bytes:
    """A new private key of a company, 32 bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_key(private: bytes) -> str:
    """The public key of a company's private key, as text for command lines."""
    return key_text(Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def key_of_text(text: str) -> bytes:
    """The inverse of :func:`public_key`, 32 bytes.

    Raises:
        ConfigError: It is none.
    """
    try:
        raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
        Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"a company's key must be 43 letters, digits, - and _, got {text!r:.60}.") from error
    return raw


class Asking(NamedTuple):
    """Identity of who asks.

    Attributes:
        name: The asker, or ``company/person``: what questions are counted and tickets are made for.
        readers: Names of readers that it is, with :data:`OPEN` where it may read documents that name none.
    """

    name: str
    readers: frozenset[str]


def identify(
    asker: str, groups: Iterable[str], key: bytes, given: Any, day: int, default: Collection[str] = ()
) -> Asking:
    """The identity of who asks.

    Args:
        asker: The asker whose token was shown.
        groups: Groups that the owner puts it into.
        key: Public key by which it signs for its people, 32 bytes; empty: it asks for itself.
        given: What the question says about a person, as of :func:`sign_person`; None: nothing.
        day: Today, in days since 1970.
        default: Readers of documents that name none; empty: every asker.

    Raises:
        WireError: It is not signed by the asker, is over, or is not about its people.
    """
    names, name = {asker, *groups}, asker
    if given is not None:
        person = _verify(asker, key, given, day)
        name = f"{asker}/{person['name']}"
        names |= {name, *(f"{asker}:{group}" for group in person["groups"])}
    if not default or names & set(default):
        names.add(OPEN)
    return Asking(name, frozenset(names))


def _verify(asker: str, key: bytes, given: Any, day: int) -> dict[str, Any]:
    try:
        said, signature = given["said"].encode(), base64.b64decode(given["signature"], validate=True)
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _PREFIX + said)
        person = json.loads(said)
        groups, until = person["groups"], person["until"]
        if person["asker"] != asker or not is_name(person["name"]) or not isinstance(until, int):
            raise ValueError
        if not isinstance(groups, list) or len(groups) > MOST_GROUPS or not all(map(is_name, groups)):
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, InvalidSignature) as error:
        raise WireError("who asks is not signed by this asker's company, or this owner has not its key.") from error
    if until < day:
        raise WireError("the company's word for who asks is over; have it signed anew.")
    return person


def sign_person(private: bytes, company: str, name: str, groups: Iterable[str], until: int) -> Mapping[str, Json]:
    """A company's word for one of its people, to be sent with questions.

    Args:
        private: The company's private key, 32 bytes.
        company: Its name as an asker.
        name: The person.
        groups: Groups of the company that the person is in.
        until: Last day on which it holds, in days since 1970.

    Raises:
        ConfigError: A name cannot be used.
    """
    groups = sorted(set(groups))
    check_names(name, *groups)
    if len(groups) > MOST_GROUPS:
        raise ConfigError(f"a person is in at most {MOST_GROUPS} groups, got {len(groups)}.")
    said = json.dumps({"asker": company, "name": name, "groups": groups, "until": until}).encode()
    signature = Ed25519PrivateKey.from_private_bytes(private).sign(_PREFIX + said)
    return {"said": said.decode(), "signature": base64.b64encode(signature).decode()}

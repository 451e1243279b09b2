"""The making of a federation: each owner brings its card to the broker, and gets the file with the cards of all.

A broker, or an attacker on the way to it, could hand out other keys than those that the owners brought. So each owner
shows :func:`verification_words` of the file that it got, and starts once its people have read them to the others: the
words of two files differ if a name, a key or a term does. An owner asks the others as ``owner/NAME``; both compute
the token from their two keys (X25519), so that none is sent to anyone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import logging
import os
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.folder import ServedFolder
from fedrank.deploy.http.client import HttpClient, is_loopback, parse_address
from fedrank.deploy.search.federation import (
    FederationFile,
    OwnerCard,
    federation_of,
    federation_text,
    read_federation,
)
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.engine.checkpoint import write_atomically
from fedrank.texts.served.envelopes import key_of
from fedrank.texts.served.rights import check_names

#: Largest card, and largest federation file, in bytes.
LARGEST_CARD, _LARGEST_FILE = 4096, 1 << 20
#: Seconds between an owner's looks whether all others have joined.
_LOOK = 1.0
#: Words that are compared, and the cost of their hash in scrypt (32 MiB): 96 bits would give a broker that prepares
#: pairs of files a collision after 2⁴⁸ hashes, of some 0.1 s each.
_WORDS, _COST = 6, 1 << 15
#: Alphabet of proquints (Wilkerson 2009): 16 bits are consonant, vowel, consonant, vowel, consonant.
_CONSONANTS, _VOWELS = "bdfghjklmnprstvz", "aiou"
#: Name of the file with what a broker waits for.
_JOINING = "joining.json"
_log = logging.getLogger("fedrank.search")


def verification_words(file: FederationFile) -> str:
    """Six pronounceable words that stand for a federation's owners, keys and terms; addresses do not count."""
    agreed = dataclasses.asdict(dataclasses.replace(file, broker=""))
    agreed["owners"] = sorted((owner.name, owner.key) for owner in file.owners)
    data = json.dumps(agreed, sort_keys=True).encode()
    digest = hashlib.scrypt(data, salt=b"fedrank federation 1", n=_COST, r=8, p=1, maxmem=1 << 26, dklen=2 * _WORDS)
    return " ".join(proquint(int.from_bytes(digest[at : at + 2], "big")) for at in range(0, len(digest), 2))


def proquint(number: int) -> str:
    """The word for a number of 16 bits."""
    first, second, third = _CONSONANTS[number >> 12], _CONSONANTS[number >> 6 & 15], _CONSONANTS[number & 15]
    return first + _VOWELS[number >> 10 & 3] + second + _VOWELS[number >> 4 & 3] + third


class BrokerFolder(ServedFolder):
    """A broker's folder: ``federation.toml`` once all have joined, ``broker.toml`` with its tokens at the owners.

    ``joining.json`` has the terms, the number of owners, and the cards that came; arguments as of the base class.

    Attributes:
        federation: File of the federation, which is there once all owners have joined.
        tokens: File with the broker's tokens, one an owner.
    """

    kind, command = "broker", "fedrank search broker"
    lock_name = "broker.lock"
    shortest_token = 16

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path)
        self.federation, self.tokens = self.path / "federation.toml", self.path / "broker.toml"

    def begin(self, owners: int, terms: Mapping[str, Any]) -> None:
        """Expect this number of owners; cards that came before stay.

        Args:
            owners: Owners of the federation.
            terms: Other attributes of :class:`~fedrank.deploy.search.federation.FederationFile`, as its file has them.

        Raises:
            ConfigError: A term is out of range, or more owners have joined.
        """
        state = self.state() or {"cards": [], "released": []}
        if not 1 <= owners <= 1000 or owners < len(state["cards"]):
            raise ConfigError(f"owners must be in {max(1, len(state['cards']))}..1000, got {owners}.")
        example = [{"name": name, "key": name * 42 + "A"} for name in "BC"[:owners]]
        federation_of({**terms, "owners": example})
        self.token_or_new("join")
        self.write_json(_JOINING, {**state, "owners": owners, "terms": dict(terms)})

    def state(self) -> dict[str, Any] | None:
        """Content of ``joining.json``; None where the federation's file was written by hand.

        Raises:
            RunError: It cannot be read.
        """
        return self.read_json(_JOINING)

    def add(self, card: OwnerCard, token: str, sender: str = "") -> FederationFile | None:
        """Take an owner's card, or its new address with the same token; the federation's file once all have joined.

        Args:
            card: The card.
            token: By which the broker shows the owner that it is the broker.
            sender: Network address of who sent it; empty: this machine.

        Raises:
            ConfigError: Another owner has this name or key, the token of one that has joined is another, all places
                are taken, or something in it cannot be used. Nothing is written then.
        """
        state = self.state()
        if state is None:
            raise ConfigError("this broker's federation was written by hand; ask whoever runs it for the file.")
        check_names(card.name)
        key_of(card.key)
        _check_address(card.url, sender)
        row, cards = {**vars(card), "token": token}, state["cards"]
        same = [place for place, one in enumerate(cards) if card.name == one["name"] or card.key == one["key"]]
        if same and (len(same) > 1 or (cards[same[0]]["name"], cards[same[0]]["key"]) != (card.name, card.key)):
            raise ConfigError(f"another owner has joined as {card.name!r}, or with this key; choose another name.")
        if same and not hmac.compare_digest(cards[same[0]]["token"].encode(), token.encode()):
            raise ConfigError(
                f"{card.name!r} has joined with another token. Put broker.token of its folder back from a copy."
            )
        if not same and len(cards) >= state["owners"]:
            raise ConfigError(f"all {state['owners']} owners have joined; the broker's --owners says how many may.")
        if not same or cards[same[0]] != row:
            cards[same[0] if same else len(cards) :] = [row] if not same else [row, *cards[same[0] + 1 :]]
            if len(cards) == state["owners"]:
                rows = [{name: one[name] for name in ("name", "key", "url")} for one in cards]
                tokens = "".join(f"{json.dumps(one['name'])} = {json.dumps(one['token'])}\n" for one in cards)
                file = federation_of({**state["terms"], "owners": rows})
                write_atomically(self.tokens, tokens.encode(), 0o600)
                write_atomically(self.federation, federation_text(file).encode())
            self.write_json(_JOINING, state)  # last: where a write before it failed, the same card does all again
        return read_federation(self.federation) if len(cards) == state["owners"] else None

    def needs_release(self) -> bool:
        """True if all have joined and the statistics of these owners were not made."""
        state = self.state()
        if state is None or len(state["cards"]) != state["owners"] or state["owners"] == 1:
            return False
        return state["released"] != sorted(card["key"] for card in state["cards"])

    def note_release(self) -> None:
        """Write down that the statistics of these owners were made."""
        state = self.state()
        assert state is not None
        self.write_json(_JOINING, {**state, "released": sorted(card["key"] for card in state["cards"])})


def _check_address(url: str, sender: str = "") -> None:
    """Refuse an address at which no broker reaches an owner; whether http will do is the broker's to say.

    An owner may not make the broker post to itself or to services of its network's links by their numbers. Names are
    not looked up, and behind a proxy on its machine the broker takes all owners for neighbours: where owners are not
    trusted that far, what its machine may reach is for a firewall.

    Args:
        url: The address.
        sender: Network address of who gave it; empty: this machine.
    """
    HttpClient(url, allow_http=True)
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if (known := parse_address(host)) is not None:
        elsewhere = known.is_unspecified or known.is_link_local or known.is_multicast or known.is_reserved
        host, reached = str(known), known.is_loopback or not elsewhere  # ::1 is of a reserved network
    else:  # a name; what ends like a number is one in a form that resolvers take and people do not read
        reached = re.fullmatch(r"(.*\.)?(\d*|0x[0-9a-f]*)", host) is None
    if host.endswith(".localhost") or host in ("ip6-localhost", "ip6-loopback"):
        host = "localhost"
    if not reached:
        raise ConfigError(f"{url} is no address of a machine; give the one at which the broker reaches it, with --url.")
    if sender and is_loopback(host) and not is_loopback(sender):
        raise ConfigError(f"{url} is the broker's own machine; give the address of the owner's, with --url.")


def address_for(place: str, scheme: str, host: str, port: int) -> str:
    """The address of an owner's card, from where it listens.

    Args:
        place: Address of the broker.
        scheme: ``http`` or ``https``.
        host: Where the owner listens.
        port: Where the owner listens.

    Raises:
        ConfigError: The broker cannot reach it there, so that the owner must say where.
    """
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    if not port:
        raise ConfigError("joining needs the port to listen at: --port 8761; and --url where that differs.")
    _check_address(url)
    if is_loopback(host) and not is_loopback(urlsplit(place).hostname or ""):
        raise ConfigError(f"a broker on another machine does not reach {url}; give --host, and --url where it differs.")
    return url


def join(
    home: OwnerFolder,
    name: str,
    url: str,
    place: str,
    confirm: Callable[[FederationFile, str, bool], bool],
    *,
    ca: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
) -> None:
    """Bring an owner's card to a broker, wait for the others, and keep the federation's file once it is confirmed.

    An owner that has confirmed a federation goes on with that, whatever the broker says: where the broker cannot be
    reached, refuses or waits for others, and where it gives another federation that is not confirmed.

    Args:
        home: The owner's folder, prepared.
        name: The owner's name in the federation.
        url: Address at which the broker reaches it.
        place: Address of the broker, ``#`` and the code, as the broker prints it.
        confirm: Gets the federation, its words, and whether another was confirmed before; True: its people have
            compared the words.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Plain http to the broker on another machine.

    Raises:
        ConfigError: Something cannot be used, or the words were not confirmed; of an owner that has confirmed no
            federation, as the next.
        RunError: The broker refuses the card, cannot be reached, or gives no federation that can be used.
    """
    check_names(name)
    address, _, code = place.partition("#")
    client = HttpClient(address, ca=ca, allow_http=allow_http)
    card = OwnerCard(name, home.public_key(), url)
    before = read_federation(home.federation) if home.federation.exists() else None
    try:
        file = _bring_card(client, code, card, home.token("broker"), wait=before is None)
    except RunError as error:
        if before is None:
            raise
        _log.warning("%s The federation is the one that was confirmed.", error)
        return
    words = verification_words(file)
    if before is None and not confirm(file, words, False):
        raise ConfigError(
            "the words were not confirmed, and nothing is served. Where they differ, the broker or an attacker on the "
            "way to it has given out other keys."
        )
    if before is not None and verification_words(before) != words:
        _log.warning("the broker %s gives another federation than was confirmed: %s", client.url, _change(before, file))
        if not confirm(file, words, True):
            _log.warning(
                "the federation is the one that was confirmed; to compare the words of the other and join it, run the "
                "same command in a terminal: fedrank search owner serve %s --join …",
                home.path,
            )
            return
    home.keep_federation(file)


def _bring_card(client: HttpClient, code: str, card: OwnerCard, token: str, *, wait: bool) -> FederationFile:
    """The federation that the broker gives for a card; ``wait`` until all have joined. Errors as of :func:`join`."""
    body = json.dumps({**vars(card), "token": token}).encode()
    said = -1
    while True:
        try:
            answer = client.request("POST", "/v1/join", code, body=body, limit=_LARGEST_FILE)
        except OSError as error:
            raise RunError(f"the broker {client.url} cannot be reached ({error}).") from error
        found = answer.json()
        if answer.status != 200:
            why = str(found.get("detail") or f"status {answer.status}").rstrip(".")
            hint = " The code after # must be the one that it printed." if answer.status == 401 else ""
            raise RunError(f"the broker {client.url} refuses: {why}.{hint}")
        if isinstance(text := found.get("federation"), str):
            break
        joined, owners = found.get("joined"), found.get("owners")
        if not wait:
            raise RunError(f"the broker {client.url} waits for others: {joined} of {owners} owners have joined.")
        if joined != said:
            said = joined
            _log.info("%s of %s owners have joined; waiting for the others", joined, owners)
        time.sleep(_LOOK)
    try:
        file = dataclasses.replace(federation_of(tomllib.loads(text)), broker=client.url)
        check_names(*(owner.name for owner in file.owners))
    except (ConfigError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"the broker {client.url} gives no federation that can be used ({error}).") from error
    if (card.name, card.key) not in {(owner.name, owner.key) for owner in file.owners}:
        raise RunError(f"the broker {client.url} gives a federation without this owner and its key: refused.")
    return file


def _change(before: FederationFile, now: FederationFile) -> str:
    """The difference of two federations, in words: owners that came, left or have another key, and terms."""
    old, new = ({owner.name: owner.key for owner in file.owners} for file in (before, now))
    said = [f"{name} is new" for name in new if name not in old] + [f"{name} left" for name in old if name not in new]
    said += [f"{name} has another key" for name in new if name in old and old[name] != new[name]]
    terms = [field.name for field in dataclasses.fields(now) if field.name not in ("owners", "broker")]
    said += [f"{term} is {value!r}" for term in terms if (value := getattr(now, term)) != getattr(before, term)]
    return ", ".join(said)

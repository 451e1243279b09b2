"""The federation's statistics over HTTP: a secure sum in four steps, led by the broker, with a part of every owner.

Each owner checks, with the keys of ``federation.toml``, that the fresh keys which the broker hands on are those of the
other owners: every advertisement carries a message authentication code (HMAC-SHA-256) for each other owner, under a key
that only the two can compute from their long-lived keys. So a broker cannot invent owners to look behind a mask.

All owners take part or there is no sum. An owner draws its noise once for a release and sends the same vector again if
the release has to be repeated among the same owners on the same terms: what leaves is one noisy sum a release, however
often something fails on the way. Among other owners it would be seen through the difference of two sums, so they need
another release. An owner gives none while all together have too few documents for the noise, were they as many as here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import UInt32

from fedrank.core.errors import ConfigError, FedrankError, RunError, SecureSumError, WireError
from fedrank.core.trees import Json
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.search.federation import FederationFile, OwnerCard
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.engine.checkpoint import write_atomically
from fedrank.privacy.secure_sum.messages import KEY, Advertisement, Terms, message_sizes
from fedrank.privacy.secure_sum.party import Party, rows, to_array
from fedrank.privacy.secure_sum.server import Server
from fedrank.texts.served.analyser import Analyser
from fedrank.texts.served.engines import Engine
from fedrank.texts.served.envelopes import key_of
from fedrank.texts.served.statistics import StatisticsTerms, TermTable

#: The steps of a release: four of the secure sum, and handing out the result.
STEPS = ("keys", "shares", "vectors", "unmasking", "table")


_GONE = (
    "release {} was given, with its part of ε, and its vector is no longer here; only a further release would help, "
    "which a broker started with more --releases has."
)


class SpentError(RunError):
    """A release that an owner has given already and cannot give again, or that is not agreed on."""


def sum_terms(terms: StatisticsTerms) -> Terms:
    """The secure sum of a release: every owner masks with every other, and none may be missing."""
    return Terms(terms.length, terms.owners - 1, terms.owners)


class StatisticsParty:
    """An owner's part in releases; for one thread at a time.

    Args:
        folder: Folder of the owner.
        key: Its long-lived private key.
        federation: Who takes part.
        engine: Its index.
    """

    def __init__(self, folder: OwnerFolder, key: X25519PrivateKey, federation: FederationFile, engine: Engine):
        self._folder, self._key, self._engine = folder, key, engine
        self._cards, self._terms = federation.owners, federation.statistics()
        self._analyser = folder.analyser().fingerprint
        own = folder.public_key()
        self._number = next((n for n, card in enumerate(self._cards) if card.key == own), -1)
        if self._number < 0:
            raise ConfigError(f"{folder.path}: no owner of the federation {federation.name!r} has this folder's key.")
        agreed = repr((self._terms, self._analyser, [(card.name, card.key) for card in self._cards]))
        self._agreed = hashlib.sha256(agreed.encode()).hexdigest()
        self._steps = message_sizes(self._terms.length, self._terms.owners - 1)
        self._party: Party | None = None
        self._release = -1

    def answer(self, step: str, body: Mapping[str, Any]) -> dict[str, Json]:
        """The answer to one step of the broker's.

        Raises:
            WireError: The step makes no sense now.
            SecureSumError: An owner broke the rules of the sum; it is over.
            SpentError: The release is not to be given, now or later.
            RunError: The release is not to be given yet, or cannot be written down.
        """
        try:
            return getattr(self, f"_{step}")(body)
        except FedrankError:
            raise
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise WireError(f"step {step} of the statistics cannot be read ({type(error).__name__}).") from error

    def _keys(self, body: Mapping[str, Any]) -> dict[str, Json]:
        release = body["release"]
        if not isinstance(release, int) or not 0 <= release < self._terms.releases:
            raise SpentError(
                f"release {release} is not agreed on: {self._terms.releases} of ε = {self._terms.epsilon:g} together."
            )
        self._check_release(release)
        self._release, self._party = release, Party(sum_terms(self._terms), self._number)
        invitation = self._steps[0].request.decode(_bytes(body["message"]))
        reply = self._steps[0].reply.encode(self._party.advertise(invitation))
        codes: list[Json] = [
            _text(_code(self._key, card, reply)) if n != self._number else "" for n, card in enumerate(self._cards)
        ]
        return {"message": _text(reply), "codes": codes, "analyser": self._analyser}

    def _check_release(self, release: int) -> None:
        """Refuse a release that was given to other owners or on other terms, is used up, or would be noise alone."""
        given = {row.get("release", number): row for number, row in enumerate(self._folder.releases())}
        if release in given:
            if given[release].get("agreed") != self._agreed:
                raise SpentError(f"release {release} was given among other owners or on other terms; make a later one.")
            if not self._kept(release).exists():
                raise SpentError(_GONE.format(release))
            return
        # Releases on other terms do not add up to what was agreed on.
        each = self._each().items()
        if len(given) >= self._terms.releases or not all(each <= row.items() for row in given.values()):
            raise SpentError(
                f"{len(given)} releases were given, and with another one ε would exceed what is agreed on."
            )
        if lacking := self.lacking():
            raise RunError(lacking)

    def _each(self) -> dict[str, Any]:
        """The terms of a release, as they are written down."""
        terms = self._terms
        return {"epsilon": terms.epsilon / terms.releases, "delta": terms.delta, "of": terms.releases}

    def lacking(self) -> str:
        """The lack of documents for a release that is worth its ε, in words; empty: there are enough."""
        documents, fewest = len(self._engine), self._terms.fewest
        if documents * self._terms.owners >= fewest:
            return ""
        return (
            f"no statistics are given yet: the noise would hide them. With {self._terms.owners} owners and "
            f"ε = {self._terms.epsilon:g}, each needs about {fewest / self._terms.owners:,.0f} documents."
        )

    def _shares(self, body: Mapping[str, Any]) -> dict[str, Json]:
        party, roster = self._there(), self._steps[1].request.decode(_bytes(body["message"]))
        for place, other in enumerate(np.asarray(roster.parties).tolist()):
            if not 0 <= other < len(self._cards) or other == self._number:
                raise SecureSumError(f"the broker names an owner of number {other}, which there is not.")
            keys = (rows(keys, KEY)[place] for keys in (roster.seal_keys, roster.mask_keys))
            said = self._steps[0].reply.encode(Advertisement(roster.session, np.uint32(other), *map(to_array, keys)))
            given = _bytes(body["codes"][str(other)])
            if not hmac.compare_digest(given, _code(self._key, self._cards[other], said)):
                raise SecureSumError(f"the keys of owner {self._cards[other].name!r} are not its own: refused.")
        return {"message": _text(self._steps[1].reply.encode(party.share(roster)))}

    def _vectors(self, body: Mapping[str, Any]) -> dict[str, Json]:
        delivery = self._steps[2].request.decode(_bytes(body["message"]))
        masked = self._there().mask(delivery, self._vector())
        return {"message": _text(self._steps[2].reply.encode(masked))}

    def _unmasking(self, body: Mapping[str, Any]) -> dict[str, Json]:
        request = self._steps[3].request.decode(_bytes(body["message"]))
        return {"message": _text(self._steps[3].reply.encode(self._there().unmask(request)))}

    def _table(self, body: Mapping[str, Any]) -> dict[str, Json]:
        total = np.frombuffer(_bytes(body["total"]), "<u4")
        self._folder.keep_table(self._terms.table(total, self._analyser))
        self._party = None
        self._kept(self._release).unlink(missing_ok=True)
        return {}

    def _there(self) -> Party:
        if self._party is None:
            raise WireError("no sum of statistics has begun here.")
        return self._party

    def _vector(self) -> UInt32[np.ndarray, " length"]:
        """The noisy vector of this release: drawn once, written down before it leaves."""
        path = self._kept(self._release)
        if self._release in {row.get("release", number) for number, row in enumerate(self._folder.releases())}:
            try:
                return np.frombuffer(path.read_bytes(), "<u4").copy()
            except OSError as error:
                raise SpentError(_GONE.format(self._release)) from error
        vector = self._terms.vector(self._engine.words())
        write_atomically(path, vector.astype("<u4").tobytes(), 0o600)
        self._folder.add_release(
            {
                "day": int(time.time() // 86400),
                "release": self._release,
                "agreed": self._agreed,
                **self._each(),
                "owners": [card.name for card in self._cards],
                "documents": len(self._engine),
            }
        )
        return vector

    def _kept(self, release: int) -> Path:
        return self._folder.path / f"release-{release}.vector"


def make_statistics(
    federation: FederationFile,
    tokens: Mapping[str, str],
    release: int,
    *,
    progress: Callable[[str], object] = lambda _: None,
    **options: Any,
) -> tuple[int, TermTable]:
    """Lead one release as the broker and hand its result to all owners.

    Args:
        federation: Who takes part; every owner has an address.
        tokens: The broker's token at each owner, by name.
        release: Number of the release, from 0.
        progress: Called with a sentence before each step.
        **options: ``ca``, ``allow_http`` and ``timeout`` of the connections.

    Returns:
        Bytes that an owner sent, about the same for each; and the result.

    Raises:
        ConfigError: An owner has no address, or there is no token for it.
        SpentError: An owner has given this release among other owners, or it is not agreed on.
        RunError: An owner cannot be reached or refuses; nothing is handed out, and the same release can be made again.
    """
    terms = federation.statistics()
    steps, server = message_sizes(terms.length, terms.owners - 1), Server(sum_terms(terms))
    owners = [_Owner(card, tokens, options) for card in federation.owners]
    progress("keys")
    invitation = steps[0].request.encode(server.invitation())
    first = [owner.ask("keys", {"release": release, "message": _text(invitation)}) for owner in owners]
    cuts = {owner.name: answer.get("analyser") for owner, answer in zip(federation.owners, first, strict=True)}
    analyser = Analyser(federation.languages).fingerprint
    if wrong := [name for name, cut in cuts.items() if cut != analyser]:
        raise RunError(
            f"{', '.join(wrong)}: cuts texts into other words than this machine does, so that sums would mean nothing. "
            "All owners and the broker need the same languages, version of fedrank and stemmer."
        )
    codes = [_codes(owner, answer, len(owners)) for owner, answer in zip(federation.owners, first, strict=True)]
    requests: Any = server.rosters(_decode(steps[0].reply, first))
    sent, total = 0, np.zeros(0, np.uint32)
    for number, step in enumerate(STEPS[1:4], 1):
        progress(step)
        answers = []
        for place, owner in enumerate(owners):
            body: dict[str, Json] = {"message": _text(steps[number].request.encode(requests[place]))}
            if number == 1:
                body["codes"] = {str(other): code[place] for other, code in enumerate(codes) if other != place}
            answers.append(owner.ask(step, body))
        sent += sum(len(answer["message"]) for answer in answers) // len(owners)
        decoded = _decode(steps[number].reply, answers)
        if number < 3:
            requests = (server.deliveries, server.unmask_requests)[number - 1](decoded)
        else:
            total = server.total(decoded)
    progress("table")
    for owner in owners:
        owner.ask("table", {"total": _text(total.astype("<u4").tobytes())})
    return sent, terms.table(total, analyser)


class _Owner:
    """The broker's connection to one owner."""

    def __init__(self, card: OwnerCard, tokens: Mapping[str, str], options: Mapping[str, Any]):
        if not card.url or card.name not in tokens:
            raise ConfigError(f"owner {card.name!r} needs a url in the federation's file, and a broker's token here.")
        self._name, self._token = card.name, tokens[card.name]
        self._client = HttpClient(card.url, **options)

    def ask(self, step: str, body: dict[str, Json]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        try:
            response = self._client.request("POST", f"/v1/statistics/{step}", self._token, body=data, limit=8 << 20)
        except OSError as error:
            raise RunError(f"owner {self._name!r} cannot be reached ({error}); repeat the release later.") from error
        answer = response.json()
        if response.status != 200:
            error = SpentError if answer.get("error") == "spent" else RunError
            raise error(f"owner {self._name!r} refuses: {answer.get('detail') or response.status}")
        return answer


def _codes(owner: OwnerCard, answer: dict[str, Any], owners: int) -> list[Json]:
    """An owner's authentication codes, one for each other owner."""
    codes = answer.get("codes")
    if not isinstance(codes, list) or len(codes) != owners:
        raise RunError(f"owner {owner.name!r}: its part in the statistics has not {owners} authentication codes.")
    return codes


def _decode(layout: Any, answers: list[dict[str, Any]]) -> list[Any]:
    try:
        return [layout.decode(_bytes(answer["message"])) for answer in answers]
    except (FedrankError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"an owner's part in the statistics cannot be read ({error}).") from error


def _code(key: X25519PrivateKey, other: OwnerCard, said: bytes) -> bytes:
    """The authentication code between two owners for what one of them said."""
    shared = key.exchange(key_of(other.key))
    return hmac.new(hashlib.sha256(b"fedrank statistics\0" + shared).digest(), said, hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

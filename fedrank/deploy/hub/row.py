"""The stages of a hub, put together by its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedrank.deploy.hub.admission import Admission
from fedrank.deploy.hub.closing import Closing
from fedrank.deploy.hub.draws import Draws
from fedrank.deploy.hub.folder import read_log_key
from fedrank.deploy.hub.learning import ComparedModel, Model, OwnModel, RelayedModel
from fedrank.deploy.hub.publishing import PublicLog, Publishing
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import OpenRound, Stage
from fedrank.deploy.hub.store import Store
from fedrank.deploy.hub.tokens import FILE as TOKENS
from fedrank.deploy.hub.tokens import Issuer, Tokens
from fedrank.deploy.terms import Terms


@dataclass(frozen=True)
class Row:
    """The stages of a hub: those that every hub has, of one kind or another, and those that settings add.

    Attributes:
        round: The open round, which they share.
        admission: Admits devices.
        model: Learns.
        closing: Closes rounds.
        publishing: Shows models.
        checks: Refuse reports, in this order.
        issuer: Sells tokens; None: devices report with their own.
    """

    round: OpenRound
    admission: Admission
    model: Model
    closing: Closing
    publishing: Publishing
    checks: tuple[Stage, ...] = ()
    issuer: Issuer | None = None

    def __iter__(self) -> Iterator[Stage]:
        yield from (self.admission, self.model, self.closing, self.publishing, *self.checks)


def row_of(folder: Path, store: Store, settings: HubSettings, terms: Terms) -> Row:
    """The row of a hub on one log.

    Args:
        folder: Folder of the hub.
        store: The log, opened for writing.
        settings: Settings of the hub.
        terms: Terms of the hub.

    Raises:
        RunError: A file cannot be read or belongs to something else.
    """
    round_, admission = OpenRound(terms), Admission(settings, store)
    checks: list[Stage] = []
    issuer = Issuer(folder / TOKENS, terms.hub, settings.tokens) if settings.tokens else None
    if issuer is not None:
        checks.append(Tokens(issuer, store))
    if terms.draws or terms.check is not None:
        checks.append(Draws(terms, store, admission))
    model: Model
    if settings.relay:
        model = RelayedModel(settings, terms, store)
    else:
        kind = OwnModel if terms.check is None else ComparedModel
        model = kind(folder / "checkpoints", settings, terms, store)
    publishing = Publishing()
    if terms.log:
        keys = dict if issuer is None else issuer.keys
        publishing = PublicLog(read_log_key(folder, terms), store, model, keys, settings.witnesses)
    return Row(round_, admission, model, Closing(settings, terms, store, round_), publishing, tuple(checks), issuer)

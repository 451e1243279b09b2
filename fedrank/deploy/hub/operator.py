"""An operator's requests to the hub that runs from a folder on this machine."""

from __future__ import annotations

import os

from fedrank.core.errors import RunError
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.hub.folder import HubFolder


class Operator:
    """Requests with the admin token.

    Args:
        home: Folder of the hub, which must be running.
        ca: File with the certificates to trust, in place of the hub's own, which lies on this machine.

    Raises:
        RunError: No hub runs from the folder, or its token cannot be read.
    """

    def __init__(self, home: HubFolder, ca: str | os.PathLike[str] | None = None):
        self._url = home.url("hub")
        pinned = home.certificate("hub") if ca is None else None
        self._client = PersistentClient(self._url, home.token("admin"), ca=ca, allow_http=True, pinned=pinned)

    def ask(self, method: str, path: str, *, ignore: tuple[str, ...] = ()) -> ClientResponse:
        """Send a request.

        Args:
            method: ``GET``, ``POST`` or ``DELETE``.
            path: Path below the hub's address.
            ignore: Reasons of refusals that are no error.

        Raises:
            RunError: The hub does not answer, or refuses.
        """
        try:
            answer = self._client.ask(method, path, b"" if method == "POST" else None)
        except OSError as error:
            raise RunError(f"{self._url}: the hub does not answer ({error}). Is it running?") from error
        if answer.status >= 300 and answer.reason not in ignore:
            raise RunError(f"{self._url}{path}: the hub refuses ({answer.status} {answer.reason}).")
        return answer

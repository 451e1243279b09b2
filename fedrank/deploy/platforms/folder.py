"""Folders of platforms and of their coordinator.

::

    config.toml          the configuration that everybody agreed on, resolved
    platform.db          a platform's network, view and moments (coordinator.db: the coordinator's state)
    coordinator.token    token with which the coordinator asks the platform: give it to the coordinator
    application.token    token of the platform's own application
    coordinator.url      URLs at which the platform listens for each of them, while it runs
    application.url
"""

from __future__ import annotations

import os
from pathlib import Path

from fedrank.deploy.folder import ServedFolder, read_token
from fedrank.deploy.platforms.key_value_store import KeyValueStore
from fedrank.deploy.platforms.terms import Terms
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.settings import to_toml

#: Those who have a token of a platform, and a URL to ask it at.
CLIENTS = ("coordinator", "application")


class PlatformFolder(ServedFolder):
    """Paths of a platform's files, or of a coordinator's; arguments as of the base class."""

    kind, command = "platform", "fedrank serve platform"

    def open_store(self, name: str, terms: Terms, seeded: bool) -> KeyValueStore:
        """Open the database of ``"platform 0"``, ``"coordinator"`` and so on; it is made if it is not there.

        Raises:
            RunError: It belongs to something else, or cannot be written.
        """
        seed = f", draws from seed {terms.config.seed}" if seeded else ""
        store = KeyValueStore(self.path / f"{name.split()[0]}.db", f"{name} of terms {terms.fingerprint}{seed}")
        try:
            write_atomically(self.path / "config.toml", to_toml(terms.config).encode())
        except BaseException:
            store.close()
            raise
        return store

    def token_or_new(self, client: str, given: str | os.PathLike[str] | None = None) -> str:
        """The token of the ``"coordinator"`` or the ``"application"``.

        Args:
            client: Whose token.
            given: A file that holds it; None: the one in the folder, which is made if it is not there.

        Raises:
            RunError: The file cannot be read or written, or holds no token.
        """
        if given is not None:
            return read_token(Path(given))
        if not self.token_path(client).exists():
            self.make_token(client)
        return self.token(client)

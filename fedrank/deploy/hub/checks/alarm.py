"""Alarms that reach somebody who does not look: a command, a webhook."""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import subprocess
import threading
import time
import urllib.request

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json

_log = logging.getLogger("fedrank.hub")
#: Seconds for one try, tries, and seconds between them.
_SECONDS, _TRIES, _PAUSE = 30.0, 3, 10.0


def check_command(command: str) -> None:
    """Refuse a command that cannot be split into words.

    Raises:
        ConfigError: Quotes that do not close.
    """
    try:
        shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"alert_command cannot be read ({error}), got {command!r}.") from error


class Alarm:
    """Where alerts go.

    Args:
        command: A command, run without a shell, that gets the alert as JSON on its standard input; empty: none.
        url: A URL that gets it by POST; empty: none.
    """

    def __init__(self, command: str = "", url: str = ""):
        self._words, self._url = shlex.split(command), url

    def raise_(self, alert: dict[str, Json]) -> None:
        """Send an alert, from a thread of its own; what fails is tried again, and logged."""
        body = json.dumps(alert).encode()
        for name, there, send in (("command", bool(self._words), self._run), ("url", bool(self._url), self._post)):
            if there:
                threading.Thread(
                    target=_try, args=(name, send, body), name=f"fedrank-alert-{name}", daemon=True
                ).start()

    def _run(self, body: bytes) -> None:
        subprocess.run(
            self._words, input=body, timeout=_SECONDS, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        with contextlib.closing(urllib.request.urlopen(request, timeout=_SECONDS)):
            pass


def _try(name: str, send, body: bytes) -> None:
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        try:
            send(body)
            return
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # Without the words of the error, which may quote a URL with a secret.
            status = getattr(error, "returncode", None)
            _log.error("alert_%s failed: %s%s", name, type(error).__name__, f" {status}" if status is not None else "")

"""What checks a statement, and the names under which packages add such checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from fedrank.core.errors import RunError
from fedrank.core.registry import Registry
from fedrank.core.trees import Json


class NotAttestedError(RunError):
    """A statement is not accepted.

    Args:
        reason: A word for the device's log, such as ``"wrong-app"``.
    """

    def __init__(self, reason: str):
        super().__init__(f"the statement is not accepted: {reason}.")
        self.reason = reason


class Attestor(ABC):
    """Checks the statements of one kind. A subclass is a frozen dataclass whose fields are its settings."""

    @abstractmethod
    def check(self, statement: dict[str, Json], challenge: bytes, now: float) -> bytes:
        """Check a statement. Called in a thread of its own; several calls may run at once.

        Args:
            statement: As the device sent it, a JSON object of any content.
            challenge: What the statement must be about, 48 bytes.
            now: Seconds since 1970.

        Returns:
            What is the same in all statements of one key or device, of any length; empty where there is nothing such.

        Raises:
            NotAttestedError: It is not accepted. Any other exception counts as ``"malformed"``.
        """


#: Classes of attestors by name. Packages add theirs in ``fedrank.attestation``.
ATTESTORS: Registry[Any] = Registry("attestation", "fedrank.attestation")

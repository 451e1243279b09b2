"""Statements of Google's Play Integrity: a token about an app and its device, read with keys of your own.

The token of a classic request is a signed message (JWS, ES256) inside an encrypted one (JWE, A256KW with A256GCM).
Google shows both keys once you manage them yourself in the Play Console. The nonce of the request is the challenge.
"""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError, MissingExtraError
from fedrank.core.fields import setting
from fedrank.core.registry import Entry
from fedrank.core.trees import Json
from fedrank.deploy.hub.attestation import Attestor, NotAttestedError

#: Seconds that the clock of Google may be ahead of ours.
_AHEAD = 60.0


@dataclass(frozen=True)
class PlayIntegrity(Attestor):
    """Google's Play Integrity: your app, as Play knows it, on a device that passes Google's checks."""

    packages: tuple[str, ...] = setting((), "Names of the packages that may enrol.")
    certificates: tuple[str, ...] = setting(
        (), "SHA-256 digests of the certificates that sign them, in base64url; none: whatever Play recognises."
    )
    verdicts: tuple[str, ...] = setting(("MEETS_DEVICE_INTEGRITY",), "What the device must meet, all of them.")
    decryption_key: str = setting("", "File with the decryption key of the Play Console, base64.")
    verification_key: str = setting("", "File with the verification key of the Play Console, base64.")
    seconds: float = setting(300.0, "Oldest age of a token.", low=1)
    folder: str = setting("", "Folder of the hub.")

    def __post_init__(self):
        try:
            import joserfc  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("joserfc", "attestation", "Play Integrity") from error
        if not self.packages:
            raise ConfigError("packages must name at least one package, such as com.example.shop.")
        if not self.verdicts:
            raise ConfigError("verdicts must name at least one, such as MEETS_DEVICE_INTEGRITY.")
        self._keys()

    def _keys(self) -> tuple[Any, Any]:
        from joserfc.jwk import ECKey, OctKey

        try:
            secret, public = (
                base64.b64decode((Path(self.folder) / name).read_bytes(), validate=False)
                for name in (self.decryption_key, self.verification_key)
            )
            if len(secret) != 32:
                raise ValueError("the decryption key must have 32 bytes")
            return OctKey.import_key(secret), ECKey.import_key(public)
        except (OSError, ValueError) as error:
            raise ConfigError(f"decryption_key or verification_key cannot be read: {error}.") from error

    def check(self, statement: dict[str, Json], challenge: bytes, now: float) -> bytes:
        """Nothing: a token says no device. ``statement`` has ``token``, the compact form."""
        told = self._open(str(statement["token"]))
        request, app = told["requestDetails"], told["appIntegrity"]
        nonce = str(request["nonce"]).rstrip("=").encode()
        if not hmac.compare_digest(nonce, base64.urlsafe_b64encode(challenge).rstrip(b"=")):
            raise NotAttestedError("wrong-challenge")
        if not -_AHEAD <= now - float(request["timestampMillis"]) / 1000 <= self.seconds:
            raise NotAttestedError("expired")
        if (
            app["appRecognitionVerdict"] != "PLAY_RECOGNIZED"
            or request["requestPackageName"] not in self.packages
            or app["packageName"] not in self.packages
        ):
            raise NotAttestedError("wrong-app")
        digests = {str(one).rstrip("=") for one in app.get("certificateSha256Digest", ())}
        if self.certificates and not digests & {one.rstrip("=") for one in self.certificates}:
            raise NotAttestedError("wrong-app")
        if not set(self.verdicts) <= set(told["deviceIntegrity"].get("deviceRecognitionVerdict", ())):
            raise NotAttestedError("wrong-device")
        return b""

    def _open(self, token: str) -> dict[str, Any]:
        from joserfc import jwe, jws
        from joserfc.errors import JoseError

        secret, public = self._keys()
        try:
            inner = jwe.decrypt_compact(token, secret, algorithms=["A256KW", "A256GCM"]).plaintext
            return json.loads(jws.deserialize_compact(inner or b"", public, algorithms=["ES256"]).payload)
        except JoseError as error:
            raise NotAttestedError("wrong-root") from error


PLAY_INTEGRITY = Entry("play-integrity", PlayIntegrity, "Google's Play Integrity: your app on a device that passes.")

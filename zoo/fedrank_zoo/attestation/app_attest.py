"""Statements of Apple's App Attest: a key that the Secure Enclave of a device made for one app.

The checks are those of Apple's guide "Validating apps that connect to your server", steps 1 to 9. The client data of
the statement is the challenge itself. Assertions, which sign later requests, are not needed: a device enrols once.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import ConfigError, MissingExtraError
from fedrank.core.fields import setting
from fedrank.core.registry import Entry
from fedrank.core.trees import Json
from fedrank.deploy.hub.attestation import Attestor, NotAttestedError
from fedrank_zoo.attestation import Withdrawn, withdrawn_of

#: Apple App Attestation Root CA, valid until 2045.
_ROOT = b"""-----BEGIN CERTIFICATE-----
MIICITCCAaegAwIBAgIQC/O+DvHN0uD7jG5yH2IXmDAKBggqhkjOPQQDAzBSMSYw
JAYDVQQDDB1BcHBsZSBBcHAgQXR0ZXN0YXRpb24gUm9vdCBDQTETMBEGA1UECgwK
QXBwbGUgSW5jLjETMBEGA1UECAwKQ2FsaWZvcm5pYTAeFw0yMDAzMTgxODMyNTNa
Fw00NTAzMTUwMDAwMDBaMFIxJjAkBgNVBAMMHUFwcGxlIEFwcCBBdHRlc3RhdGlv
biBSb290IENBMRMwEQYDVQQKDApBcHBsZSBJbmMuMRMwEQYDVQQIDApDYWxpZm9y
bmlhMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAERTHhmLW07ATaFQIEVwTtT4dyctdh
NbJhFs/Ii2FdCgAHGbpphY3+d8qjuDngIN3WVhQUBHAoMeQ/cLiP1sOUtgjqK9au
Yen1mMEvRq9Sk3Jm5X8U62H+xTD3FE9TgS41o0IwQDAPBgNVHRMBAf8EBTADAQH/
MB0GA1UdDgQWBBSskRBTM72+aEH/pwyp5frq5eWKoTAOBgNVHQ8BAf8EBAMCAQYw
CgYIKoZIzj0EAwMDaAAwZQIwQgFGnByvsiVbpTKwSga0kP0e8EeDS4+sQmTvb7vn
53O5+FRXgeLhpJ06ysC5PrOyAjEAp5U4xDgEgllF7En3VcE3iexZZtKeYnpqtijV
oyFraWVIyd/dganmrduC1bmTBGwD
-----END CERTIFICATE-----
"""
#: Extension of the leaf with the nonce, and what stands before its 32 bytes: SEQUENCE, [1], OCTET STRING.
_NONCE, _BEFORE = "1.2.840.113635.100.8.2", b"\x30\x24\xa1\x22\x04\x20"
_PRODUCTION, _DEVELOPMENT = b"appattest" + bytes(7), b"appattestdevelop"


@dataclass(frozen=True)
class AppAttest(Attestor):
    """Apple's App Attest: a key in the Secure Enclave of a real device, made for your app."""

    apps: tuple[str, ...] = setting((), "Apps that may enrol, each a team's identifier, a dot and a bundle's.")
    development: bool = setting(False, "Accept statements of the development environment too.")
    withdrawn: str = setting(
        "", "File of keys, certificates and models that are not accepted any more; read again when it changes."
    )
    root: str = setting("", "PEM file of another root than Apple's, for tests.")
    folder: str = setting("", "Folder of the hub.")

    def __post_init__(self):
        try:
            import cryptography
            import webauthn  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("webauthn", "attestation", "App Attest") from error
        if int(cryptography.__version__.partition(".")[0]) < 45:
            raise MissingExtraError("cryptography 45 or newer", "attestation", "App Attest")
        if not self.apps:
            raise ConfigError("apps must name at least one app, such as ABCDE12345.com.example.shop.")
        self._root()
        self._withdrawals()

    def _withdrawals(self) -> Withdrawn | None:
        return withdrawn_of(Path(self.folder) / self.withdrawn) if self.withdrawn else None

    def _root(self):
        from cryptography.x509 import load_pem_x509_certificate

        if not self.root:
            return load_pem_x509_certificate(_ROOT)
        try:
            return load_pem_x509_certificate((Path(self.folder) / self.root).read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"root = {self.root!r} is no file with a certificate in PEM ({error}).") from error

    def check(self, statement: dict[str, Json], challenge: bytes, now: float) -> bytes:
        """The identifier of the key; ``statement`` has ``attestation``, base64 of the attestation object."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
        from cryptography.x509 import ObjectIdentifier, load_der_x509_certificate
        from webauthn.helpers import parse_attestation_object, parse_cbor

        whole = base64.b64decode(str(statement["attestation"]), validate=True)
        parsed = parse_attestation_object(whole)
        data, key = parsed.auth_data, parsed.auth_data.attested_credential_data
        if parsed.fmt != "apple-appattest" or key is None:
            raise NotAttestedError("malformed")
        certificates = [load_der_x509_certificate(one) for one in parsed.att_stmt.x5c or []]
        if len(certificates) < 2:
            raise NotAttestedError("malformed")
        leaf = certificates[0]
        self._verify(certificates, now)
        authenticator = parse_cbor(whole)["authData"]
        nonce = hashlib.sha256(authenticator + hashlib.sha256(challenge).digest()).digest()
        if leaf.extensions.get_extension_for_oid(ObjectIdentifier(_NONCE)).value.public_bytes() != _BEFORE + nonce:
            raise NotAttestedError("wrong-challenge")
        public = leaf.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        if hashlib.sha256(public).digest() != key.credential_id:
            raise NotAttestedError("wrong-key")
        if data.rp_id_hash not in [hashlib.sha256(app.encode()).digest() for app in self.apps]:
            raise NotAttestedError("wrong-app")
        if data.sign_count != 0:
            raise NotAttestedError("used-key")
        if key.aaguid != _PRODUCTION and not (self.development and key.aaguid == _DEVELOPMENT):
            raise NotAttestedError("wrong-environment")
        if (withdrawn := self._withdrawals()) is not None:
            withdrawn.refuse(key.credential_id, (one.serial_number for one in certificates))
        return key.credential_id

    def _verify(self, certificates: list, now: float) -> None:
        """Check that the certificates, the leaf first, lead to the root and are valid now."""
        from cryptography.x509.verification import ExtensionPolicy, PolicyBuilder, Store, VerificationError

        if not all(
            one.not_valid_before_utc.timestamp() <= now <= one.not_valid_after_utc.timestamp() for one in certificates
        ):
            raise NotAttestedError("expired")
        policy = PolicyBuilder().store(Store([self._root()]))
        policy = policy.time(datetime.datetime.fromtimestamp(now, datetime.UTC).replace(tzinfo=None))
        policy = policy.extension_policies(
            ca_policy=ExtensionPolicy.webpki_defaults_ca(), ee_policy=ExtensionPolicy.permit_all()
        )
        try:
            policy.build_client_verifier().verify(certificates[0], certificates[1:])
        except VerificationError as error:
            raise NotAttestedError("wrong-root") from error


APP_ATTEST = Entry("app-attest", AppAttest, "Apple's App Attest: a key in the Secure Enclave of a real device.")

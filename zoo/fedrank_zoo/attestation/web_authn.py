"""Statements of WebAuthn (Web Authentication Level 2, section 7.1): an authenticator of a known maker holds a new key.

A statement without the certificate of a maker proves only that its sender has a key, and
a thousand keys are made at once. So formats ``none`` and self attestation are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import ConfigError, MissingExtraError
from fedrank.core.fields import setting
from fedrank.core.registry import Entry
from fedrank.core.trees import Json
from fedrank.deploy.hub.attestation import Attestor, NotAttestedError
from fedrank_zoo.attestation import Withdrawn, withdrawn_of

#: Formats of which the library knows the roots, and those that need some from the operator.
_KNOWN, _OWN = ("apple", "android-key"), ("packed", "fido-u2f", "tpm")
#: What the library says → our word.
_WORDS = (
    ("challenge", "wrong-challenge"),
    ("origin", "wrong-app"),
    ("RP ID", "wrong-app"),
    ("User presence", "no-user"),
    ("User verification", "no-user"),
    ("ertificate chain", "wrong-root"),
)


@dataclass(frozen=True)
class WebAuthn(Attestor):
    """WebAuthn: an authenticator of a maker that you trust holds a new key for your site."""

    site: str = setting("", "Relying party identifier: the domain of your site, such as shop.example.")
    origins: tuple[str, ...] = setting((), "Origins of its pages, such as https://shop.example.")
    formats: tuple[str, ...] = setting(_KNOWN, "Formats that are accepted: apple, android-key, packed, fido-u2f, tpm.")
    roots: tuple[str, ...] = setting(
        (), "PEM files of the makers' root certificates; packed, fido-u2f and tpm need them."
    )
    withdrawn: str = setting(
        "", "File of keys, certificates and models that are not accepted any more; read again when it changes."
    )
    verified: bool = setting(False, "The authenticator must have verified its user, by finger or PIN.")
    folder: str = setting("", "Folder of the hub.")

    def __post_init__(self):
        try:
            import webauthn  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("webauthn", "attestation", "WebAuthn") from error
        if not self.site or not self.origins:
            raise ConfigError("site and origins must be given, such as shop.example and https://shop.example.")
        if unknown := [one for one in self.formats if one not in _KNOWN + _OWN]:
            raise ConfigError(f"formats must be of {', '.join(_KNOWN + _OWN)}, got {unknown[0]!r}.")
        if not self.roots and (bare := [one for one in self.formats if one in _OWN]):
            raise ConfigError(f"format {bare[0]} needs roots: without them anyone can make such a statement.")
        self._roots()
        self._withdrawals()

    def _withdrawals(self) -> Withdrawn | None:
        return withdrawn_of(Path(self.folder) / self.withdrawn) if self.withdrawn else None

    def _roots(self) -> list[bytes]:
        from cryptography.x509 import load_pem_x509_certificate

        found = []
        for name in self.roots:
            try:
                found.append((Path(self.folder) / name).read_bytes())
                load_pem_x509_certificate(found[-1])
            except (OSError, ValueError) as error:
                raise ConfigError(f"roots: {name!r} is no file with a certificate in PEM ({error}).") from error
        return found

    def check(self, statement: dict[str, Json], challenge: bytes, now: float) -> bytes:
        """The credential's identifier; ``statement`` is a PublicKeyCredential as its ``toJSON()`` makes it."""
        from webauthn import verify_registration_response
        from webauthn.helpers import parse_attestation_object, parse_registration_credential_json
        from webauthn.helpers.exceptions import WebAuthnException
        from webauthn.helpers.structs import AttestationFormat

        credential = parse_registration_credential_json(dict(statement))
        parsed = parse_attestation_object(credential.response.attestation_object)
        if parsed.fmt not in self.formats:
            raise NotAttestedError("wrong-format")
        if not parsed.att_stmt.x5c:  # self attestation
            raise NotAttestedError("wrong-root")
        try:
            verified = verify_registration_response(
                credential=credential,
                expected_challenge=challenge,
                expected_rp_id=self.site,
                expected_origin=list(self.origins),
                require_user_verification=self.verified,
                pem_root_certs_bytes_by_fmt={AttestationFormat(one): self._roots() for one in self.formats},
            )
        except WebAuthnException as error:
            said = str(error)
            raise NotAttestedError(next((word for part, word in _WORDS if part in said), "malformed")) from error
        if (withdrawn := self._withdrawals()) is not None:
            from cryptography.x509 import load_der_x509_certificate

            serials = (load_der_x509_certificate(one).serial_number for one in parsed.att_stmt.x5c)
            key = parsed.auth_data.attested_credential_data
            withdrawn.refuse(verified.credential_id, serials, b"" if key is None else key.aaguid)
        return verified.credential_id


WEBAUTHN = Entry("webauthn", WebAuthn, "WebAuthn: an authenticator of a maker that you trust holds a new key.")

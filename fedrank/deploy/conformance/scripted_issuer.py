"""Blind tokens of a scripted hub: one key for all epochs that a scene sees, and what is shown and asked with it."""

from __future__ import annotations

import base64
import json

from fedrank.core.errors import WireError
from fedrank.deploy.oblivious.blind_rsa import EXPONENT, PublicKey, Signer, Verifier
from fedrank.deploy.oblivious.tokens import (
    MODULUS,
    blinded_in,
    content_of,
    encode_key,
    epoch_challenge,
    key_id,
    token_in,
)


class ScriptedIssuer:
    """Sells tokens of epoch 0 (section 11 of the wire format).

    Args:
        hub: Name of the hub.

    Raises:
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, hub: str):
        from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        key = generate_private_key(EXPONENT, 8 * MODULUS)
        public = PublicKey(key.public_key().public_numbers().n)
        self._signer, self._verifier, self._public = Signer(key), Verifier(public), encode_key(public)
        self._challenge = epoch_challenge(hub, 0)

    def keys(self, round_: int, state: str, etag: str) -> bytes:
        """The answer to a question for the keys (rule 11.2)."""
        sold = {"0": base64.urlsafe_b64encode(self._public).decode()}
        return json.dumps({"round": round_, "state": state, "etag": etag, "keys": sold}).encode()

    def sign(self, request: bytes) -> bytes | None:
        """The token response to a token request; None if it is none."""
        try:
            return self._signer.sign(blinded_in(request, self._public))
        except WireError:
            return None

    def shown(self, header: str) -> bytes | None:
        """The token in a header, if it is one of this issuer's; else None."""
        token = token_in(header.encode())
        if token is None or token[34:66] != self._challenge or token[66:98] != key_id(self._public):
            return None
        return token if self._verifier.accepts(content_of(token), token[-MODULUS:]) else None

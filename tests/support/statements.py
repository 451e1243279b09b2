"""Statements of platforms as the platforms document them, made with keys and roots of a test.

Nothing here is signed by a platform: what real ones sign stands in files beside the tests that use it.
"""

import base64
import datetime
import hashlib
import json
import struct

import cbor2
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

YEAR = datetime.timedelta(days=365)


def _name(text, unit="Authenticator Attestation"):
    parts = [
        (NameOID.COUNTRY_NAME, "SE"),
        (NameOID.ORGANIZATION_NAME, "Test"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
    ]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in [*parts, (NameOID.COMMON_NAME, text)]])


class Authority:
    """A root, and one authority below it, that a test's platform signs with."""

    def __init__(self, now=None):
        self.now = now or datetime.datetime.now(datetime.UTC)
        self.root_key, self.key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
        self.root = self._certify("root", self.root_key.public_key(), "root", self.root_key, 1)
        self.below = self._certify("below", self.key.public_key(), "root", self.root_key, 0)

    @property
    def pem(self):
        return self.root.public_bytes(Encoding.PEM)

    def _certify(self, subject, public, issuer, key, length, *extensions, days=365):
        ca = length is not None
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - datetime.timedelta(days=1))
            .not_valid_after(self.now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca, length), critical=True)
            .add_extension(x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False), critical=True)
        )
        if ca:
            identifier = x509.SubjectKeyIdentifier.from_public_key(public)
            builder = builder.add_extension(identifier, critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        for oid, value in extensions:
            builder = builder.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), False)
        return builder.sign(key, hashes.SHA384())

    def leaf(self, public, *extensions, days=3):
        return self._certify("leaf", public, "below", self.key, None, *extensions, days=days)


def _der(*certificates):
    return [one.public_bytes(Encoding.DER) for one in certificates]


def _cose(public):
    numbers = public.public_numbers()
    return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)})


def _authenticator(name, flags, count, aaguid, identifier, public):
    head = hashlib.sha256(name.encode()).digest() + struct.pack(">BI", flags, count) + aaguid
    return head + struct.pack(">H", len(identifier)) + identifier + _cose(public)


def app_attest(
    authority, challenge, app, *, aaguid=b"appattest" + bytes(7), count=0, key=None, days=3, other_key=False
):
    """A statement of App Attest."""
    public = (key or ec.generate_private_key(ec.SECP256R1())).public_key()
    identifier = hashlib.sha256(public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)).digest()
    if other_key:
        identifier = hashlib.sha256(b"another").digest()
    data = _authenticator(app, 0x40, count, aaguid, identifier, public)
    nonce = hashlib.sha256(data + hashlib.sha256(challenge).digest()).digest()
    leaf = authority.leaf(public, ("1.2.840.113635.100.8.2", b"\x30\x24\xa1\x22\x04\x20" + nonce), days=days)
    made = {"fmt": "apple-appattest", "attStmt": {"x5c": _der(leaf, authority.below), "receipt": b""}, "authData": data}
    return {"attestation": base64.b64encode(cbor2.dumps(made)).decode()}


def _text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def webauthn(authority, challenge, site, origin, *, fmt="packed", own=False, days=3):
    """A PublicKeyCredential with a packed attestation, with none, or with one by its own key."""
    key, signer = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    identifier, aaguid = hashlib.sha256(challenge + origin.encode()).digest(), b"a test's devices"
    data = _authenticator(site, 0x41, 0, aaguid, identifier, key.public_key())
    client = json.dumps({"type": "webauthn.create", "challenge": _text(challenge), "origin": origin}).encode()
    signed = data + hashlib.sha256(client).digest()
    statement = {}
    if fmt == "packed":
        statement = {"alg": -7, "sig": (key if own else signer).sign(signed, ec.ECDSA(hashes.SHA256()))}
        if not own:
            leaf = authority.leaf(signer.public_key(), ("1.3.6.1.4.1.45724.1.1.4", b"\x04\x10" + aaguid), days=days)
            statement["x5c"] = _der(leaf, authority.below)
    made = cbor2.dumps({"fmt": fmt, "attStmt": statement, "authData": data})
    return {
        "id": _text(identifier),
        "rawId": _text(identifier),
        "type": "public-key",
        "response": {"attestationObject": _text(made), "clientDataJSON": _text(client)},
        "clientExtensionResults": {},
    }


def play_keys():
    """The two keys of a Play Console, as it shows them: base64 of 32 bytes, and of a public key in DER; and its own."""
    signer, secret = ec.generate_private_key(ec.SECP256R1()), hashlib.sha256(b"of a test").digest()
    public = signer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(secret), base64.b64encode(public), (secret, signer)


def play_integrity(keys, challenge, package, made, *, certificate="", **verdicts):
    """A statement of Play Integrity: a classic request's token."""
    from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat
    from joserfc import jwe, jws
    from joserfc.jwk import ECKey, OctKey

    secret, signer = keys
    told = {
        "requestDetails": {
            "requestPackageName": package,
            "nonce": base64.urlsafe_b64encode(challenge).decode(),
            "timestampMillis": str(int(made * 1000)),
        },
        "appIntegrity": {
            "appRecognitionVerdict": verdicts.get("app", "PLAY_RECOGNIZED"),
            "packageName": package,
            "certificateSha256Digest": [certificate],
            "versionCode": "42",
        },
        "deviceIntegrity": {"deviceRecognitionVerdict": verdicts.get("device", ["MEETS_DEVICE_INTEGRITY"])},
        "accountDetails": {"appLicensingVerdict": "LICENSED"},
    }
    pem = signer.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    inner = jws.serialize_compact({"alg": "ES256"}, json.dumps(told).encode(), ECKey.import_key(pem))
    token = jwe.encrypt_compact(
        {"alg": "A256KW", "enc": "A256GCM"}, inner, OctKey.import_key(secret), algorithms=["A256KW", "A256GCM"]
    )
    return {"token": token}

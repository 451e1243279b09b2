"""Blind signatures, tokens and encapsulation give what the RFCs' appendices print."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from fedrank.deploy.oblivious.encapsulation import (
    BinaryRequest,
    BinaryResponse,
    Gateway,
    decode_request,
    decode_response,
    encapsulate,
    encode_request,
    encode_response,
    new_private_key,
    public_key_of,
)
from fedrank.deploy.oblivious.tokens import (
    EXPONENT,
    PublicKey,
    Signer,
    Verifier,
    ask_for,
    blind,
    blinded_in,
    challenge_of,
    content_of,
    decode_key,
    encode_key,
    finalise,
    header_of,
    key_id,
    key_id_in,
    token_in,
)

VECTORS = json.loads((Path(__file__).parent / "oblivious-vectors.json").read_text())


def of(vector: dict, *names: str) -> list[bytes]:
    return [bytes.fromhex(vector[name]) for name in names]


def test_blind_signatures_are_those_of_rfc_9474():
    vector = VECTORS["rfc9474"]
    p, q = int(vector["p"], 16), int(vector["q"], 16)
    d = pow(EXPONENT, -1, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(EXPONENT, p * q)
    )
    message, salt, inverse, blinded, signed, signature = of(
        vector, "msg", "salt", "inv", "blinded_msg", "blind_sig", "sig"
    )
    key = PublicKey(p * q)
    assert blind(key, message, salt=salt, inverse=int.from_bytes(inverse)) == (blinded, inverse)
    assert Signer(numbers.private_key()).sign(blinded) == signed
    assert finalise(key, message, signed, inverse) == signature
    assert Verifier(key).accepts(message, signature) and not Verifier(key).accepts(message + b"\0", signature)


@pytest.mark.parametrize("vector", VECTORS["rfc9578"], ids=["context", "no-context"])
def test_tokens_are_those_of_rfc_9578(vector):
    published, challenge, nonce, salt, context = of(vector, "pkS", "token_challenge", "nonce", "salt", "context")
    request, response, token = of(vector, "token_request", "token_response", "token")
    key = decode_key(published)
    assert encode_key(key) == published
    assert challenge_of(vector["issuer"], context, vector["origin"]) == challenge
    inverse = pow(int(vector["blind"], 16), -1, key.n)
    asked = ask_for(published, sha256(challenge).digest(), nonce=nonce, salt=salt, inverse=inverse)
    assert asked.request == request
    assert pow(int.from_bytes(response), EXPONENT, key.n) == int.from_bytes(blinded_in(request, published))
    assert asked.token(response) == token
    assert key_id_in(token) == key_id(published)
    assert Verifier(key).accepts(content_of(token), token[-256:])
    assert token_in(header_of(token).encode()) == token


def test_encapsulation_is_that_of_rfc_9458():
    vector = VECTORS["rfc9458"]
    secret, public, ephemeral, request, sealed = of(vector, "skR", "pkR", "skE", "request", "encapsulated_request")
    response, nonce, answered = of(vector, "response", "response_nonce", "encapsulated_response")
    plain = BinaryRequest(*(vector[n].encode() for n in ("method", "path")), (), b"", b"https", b"example.com")
    assert encode_request(plain) == request and decode_request(request) == plain
    gateway = Gateway(secret)
    assert gateway.public == public
    sent = encapsulate(public, request, ephemeral)
    assert sent.request == sealed
    opened = gateway.open(sealed)
    assert opened.request == request
    assert encode_response(BinaryResponse(200)) == response and decode_response(response) == BinaryResponse(200)
    assert opened.seal(response, nonce) == answered
    assert sent.open(answered) == response


def test_encapsulation_is_understood_by_another_library_and_understands_it():
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
    private = new_private_key()
    public, head = public_key_of(private), bytes.fromhex("01002000010001")
    info = b"message/bhttp request\0" + head
    sent = encapsulate(public, b"asked").request
    context = suite.create_recipient_context(sent[7:39], suite.kem.deserialize_private_key(private), info)
    assert sent[:7] == head and context.open(sent[39:]) == b"asked"
    sender, theirs = suite.create_sender_context(suite.kem.deserialize_public_key(public), info)
    assert Gateway(private).open(head + sender + theirs.seal(b"other")).request == b"other"

"""Devices that share no line with the package, written from the wire document, of a hub that has everything on.

    python -I benchmarks/hub/foreign_devices.py NOTES ENROLMENT_TOKEN_FILE PORT [PORT …]

Blind signatures are Python's integers, encapsulation is ``pyhpke``. Each thread is a device: it enrols, buys a token of
the next round, takes the model, and reports the same bytes until it has an answer, at whichever port hears it. All but
its enrolment goes through the gateway. Some devices are greedy: they ask for a second token of an epoch, and show a
token again with another report. What was acknowledged, which model was handed out for a round, and what a greedy
device was given goes to the file NOTES, a line each, before the device goes on. Runs until it is terminated. The hub
must have epochs of one round, the piecewise mechanism, drawn seeds, and a gateway.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import random
import secrets
import struct
import sys
import threading
import time

from pyhpke import AEADId, CipherSuite, KDFId, KEMId

DEVICES = 32
SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
HEAD = bytes.fromhex("01002000010001")


def ask(ports, method, path, headers, body=b""):
    """Status and body of one request at any of the ports; status 0: no answer."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", random.choice(ports), timeout=10)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""


def number(value):
    """A variable-length integer of QUIC."""
    for prefix, size in ((0, 1), (1, 2), (2, 4)):
        if value < 1 << (8 * size - 2):
            return (prefix << (8 * size - 2) | value).to_bytes(size)
    raise ValueError(value)


def piece(data):
    """Bytes after their length."""
    return number(len(data)) + data


def take(data, at):
    """The integer at a place, and the place after it."""
    size = 1 << (data[at] >> 6)
    return int.from_bytes(data[at : at + size]) & ((1 << (8 * size - 2)) - 1), at + size


def through(ports, gateway, method, path, authorization="", body=b""):
    """Status and body of a request inside an encapsulated one; status 0: no answer that can be opened."""
    fields = piece(b"authorization") + piece(authorization.encode()) if authorization else b""
    plain = b"\0" + b"".join(map(piece, (method.encode(), b"https", b"", path.encode(), fields, body))) + b"\0"
    sender, context = SUITE.create_sender_context(
        SUITE.kem.deserialize_public_key(gateway), b"message/bhttp request\0" + HEAD
    )
    sealed = HEAD + sender + context.seal(plain + bytes(1024 - len(plain)))
    status, answer = ask(ports, "POST", "/v1/oblivious", {"Content-Type": "message/ohttp-req"}, sealed)
    if status != 200:
        return 0, b""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    prk = hmac.digest(sender + answer[:16], context.export(b"message/bhttp response", 16), "sha256")
    key, nonce = (hmac.digest(prk, what + b"\x01", "sha256") for what in (b"key", b"nonce"))
    opened = AESGCM(key[:16]).decrypt(nonce[:12], answer[16:], None)
    status, at = take(opened, 1)
    length, at = take(opened, at)
    length, at = take(opened, at + length)
    return status, opened[at : at + length]


def mask(seed, length):
    """The first ``length`` bytes of the mask of a seed by MGF1 with SHA-384 (RFC 8017, Section B.2.1)."""
    return b"".join(hashlib.sha384(seed + i.to_bytes(4)).digest() for i in range(-(-length // 48)))[:length]


def draw_token(hub, epoch, offer):
    """A token that is to be bought: its content, the modulus, what undoes the blinding, the request."""
    key, commitment = offer[:-32], offer[-32:]
    n = int.from_bytes(key[-261:-5])
    context = hashlib.sha256(b"fedrank-epoch" + epoch.to_bytes(4) + commitment).digest()
    challenge = b"\0\x02" + len(hub).to_bytes(2) + hub.encode() + b"\x20" + context + b"\0\0"
    content = b"\0\x02" + secrets.token_bytes(32) + hashlib.sha256(challenge).digest() + hashlib.sha256(key).digest()
    salt = secrets.token_bytes(48)
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(content).digest() + salt).digest()
    block = bytes(256 - 48 - 48 - 2) + b"\x01" + salt
    masked = bytearray(a ^ b for a, b in zip(block, mask(digest, len(block)), strict=True))
    masked[0] &= 0x7F
    encoded = int.from_bytes(bytes(masked) + digest + b"\xbc")
    r = secrets.randbelow(n - 2) + 2
    blinded = encoded * pow(r, 65537, n) % n
    request = b"\0\x02" + hashlib.sha256(key).digest()[-1:] + blinded.to_bytes(256)
    return {
        "content": content,
        "n": n,
        "encoded": encoded,
        "inverse": pow(r, -1, n),
        "request": request,
        "commitment": commitment,
    }


class Device:
    """One device."""

    def __init__(self, name, ports, note):
        self.name, self.ports, self.note, self.wallet, self.done = name, ports, note, {}, set()
        random.seed(os.urandom(8))
        self.greedy = random.random() < 0.3

    def enrol(self, enrolment):
        """Enrol; the terms are kept."""
        while True:
            status, body = ask(self.ports, "POST", "/v1/enrol", {"Authorization": "Bearer " + enrolment})
            if status == 201:
                said = json.loads(body)
                self.token, self.terms = said["token"], said["terms"]
                self.gateway = bytes.fromhex(self.terms["gateway"])
                return
            time.sleep(0.1)

    def ask(self, method, path, authorization="", body=b""):
        """A request through the gateway."""
        return through(self.ports, self.gateway, method, path, authorization, body)

    def buy(self, epoch, offer):
        """Buy the token of an epoch; the same request until it is answered."""
        held = self.wallet.setdefault(epoch, draw_token(self.terms["hub"], epoch, offer))
        if "token" in held or "gone" in held:
            return
        status, signed = self.ask("POST", f"/v1/token/{epoch}", "Bearer " + self.token, held["request"])
        if status == 401:
            self.note(kind="wrong", what="a device's token is refused", device=self.name)
        elif status == 409:
            held["gone"] = True
        if status != 200:
            return
        signature = int.from_bytes(signed) * held["inverse"] % held["n"]
        if pow(signature, 65537, held["n"]) != held["encoded"]:
            self.note(kind="wrong", what="a signature is none", device=self.name)
        held["token"] = held["content"] + signature.to_bytes(256)
        if self.greedy:
            other = draw_token(self.terms["hub"], epoch, offer)["request"]
            status, _ = self.ask("POST", f"/v1/token/{epoch}", "Bearer " + self.token, other)
            if status == 200:
                self.note(kind="wrong", what="a second token of an epoch was sold", device=self.name)
            elif status:
                self.note(kind="greedy", what="second purchases refused")

    def report(self, round_, beacon):
        """Report in a round, if the token draws so; the same bytes until they are answered."""
        held = self.wallet.get(round_)
        if held is None or "token" not in held or round_ in self.done:
            return
        self.done.add(round_)
        secret, reports = (base64.urlsafe_b64decode(beacon[name]) for name in ("secret", "reports"))
        if hashlib.sha256(secret).digest() != held["commitment"]:
            self.note(kind="wrong", what="the secret is not the one that was committed to", device=self.name)
            return
        if held.setdefault("beacon", secret + reports) != secret + reports:
            self.note(kind="wrong", what="the beacon changed", device=self.name)
            return
        value = hashlib.sha256(b"fedrank/beacon" + secret + reports).digest()
        key = (int.from_bytes(hashlib.sha256(held["content"]).digest()[:8]) >> 1).to_bytes(8)

        def word(purpose):
            return int.from_bytes(hmac.digest(key, purpose + value, "sha256")[:4], "little")

        def drawn(purpose, share):
            return share >= 1 or word(purpose) < max(1, int(share * 2.0**32))

        if not drawn(b"fedrank/due", self.terms["due"]):
            return
        shown = f'PrivateToken token="{base64.urlsafe_b64encode(held["token"]).decode()}"'
        number_ = random.randrange(self.terms["inside"] + self.terms["outside"])
        body = struct.pack("<BIB", 0x25, word(b"fedrank/seed"), number_)
        if drawn(b"fedrank/check", self.terms["checks"]):
            status, best = self.ask("GET", "/v1/best")
            _, model = self.ask("GET", "/v1/model")
            if status == 200 and best[5:] != model[5:]:
                body = struct.pack("<B4sB", 0x27, hashlib.sha256(best[5:]).digest()[:4], number_)
        while True:
            status, answer = self.ask("POST", f"/v1/report/{round_}", shown, body)
            if status in (200, 201):
                self.note(kind="acknowledged", round=round_, device=key.hex(), report=body.hex())
                break
            if status not in (0, 429, 503):
                self.note(kind="refused", status=status, why=json.loads(answer).get("error"))
                break
            time.sleep(0.05)
        if self.greedy and status in (200, 201):
            other = body[:-1] + bytes([body[-1] ^ 1])
            status, _ = self.ask("POST", f"/v1/report/{round_}", shown, other)
            if status in (200, 201):
                self.note(kind="wrong", what="a token was spent twice", device=self.name)
            elif status:
                self.note(kind="greedy", what="second reports refused")

    def live(self, enrolment):
        """Enrol, then buy tokens, fetch models and report round after round, until the process ends."""
        self.enrol(enrolment)
        while True:
            status, said = self.ask("GET", "/v1/tokens")
            if status != 200:
                time.sleep(0.1)
                continue
            said = json.loads(said)
            if "epoch" in said:
                self.buy(said["epoch"], base64.urlsafe_b64decode(said["offer"]))
            status, model = self.ask("GET", "/v1/model")
            if status == 200 and model[0] == 0x21:
                round_ = struct.unpack("<I", model[1:5])[0]
                self.note(kind="model", round=round_, sha256=hashlib.sha256(model[5:]).hexdigest())
                if round_ == said["round"] and "beacon" in said:
                    self.report(round_, said["beacon"])
            time.sleep(0.05 + random.random() * 0.1)


def main():
    """Start the devices."""
    notes, enrolment, *ports = sys.argv[1:]
    lock = threading.Lock()
    with open(enrolment, encoding="ascii") as file:
        token = file.read().strip()
    with open(notes, "a", encoding="ascii") as out:

        def note(**fields):
            with lock:
                out.write(json.dumps(fields) + "\n")
                out.flush()

        for name in range(DEVICES):
            device = Device(name, [int(p) for p in ports], note)
            threading.Thread(target=device.live, args=(token,), daemon=True).start()
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()

"""Authentication and limits of requests.

Four limits, all in memory and all reset when the server stops:

* requests of one device;
* enrolments with a secret that is known, all together;
* the same of one network, so that it leaves room for others (:func:`limited_network`);
* requests of one network address without a token, or with a wrong one.

The last never keeps an honest device out. A device's token has 256 random bits and an enrolment token is in every copy
of an app: neither is worth guessing, and comparing is cheaper than refusing. So they are always compared, and the limit
changes only the response to wrong ones: 429 instead of 401. A client that keeps failing does not slow down others at
the same address (a school, a mobile network). The admin token is the one secret that a person may have chosen: an
address that failed with it too often gets 429 before the token is compared. Those failures are counted separately, so
that failing devices do not keep the operator out.

Addresses are kept for a few minutes at most, in memory only, and never written or logged.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import math
import time
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.deploy.http.client import parse_address

#: Longest token that is accepted, in bytes.
LONGEST_TOKEN = 256
#: Shortest enrolment or admin token that a hub accepts, in characters.
SHORTEST_TOKEN = 16
#: IPv4 addresses that agree in this number of bits enrol as one network: addresses of one block are cheap to have.
_IPV4_ENROLMENT_BITS, _IPV6_ENROLMENT_BITS = 24, 48
#: After an early response: bytes and seconds of what is still being sent that are read and dropped, so that it arrives.
_LINGER_BYTES, _LINGER_SECONDS = 1 << 20, 2.0

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Secret:
    """A token that those of requests are compared with; kept as its SHA-256.

    Args:
        token: ASCII, at least :data:`SHORTEST_TOKEN` characters; None: nothing matches.
        name: Name of the token in errors.

    Raises:
        ConfigError: The token is too short, too long or has characters that no header can carry.
    """

    def __init__(self, token: str | None, name: str):
        self._digest = None
        if token is None:
            return
        if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not all("!" <= c <= "~" for c in token):
            raise ConfigError(
                f"{name} must have {SHORTEST_TOKEN}..{LONGEST_TOKEN} ASCII characters without spaces, got {len(token)} "
                "characters. Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        self._digest = hashlib.sha256(token.encode()).digest()

    def matches(self, token: str | None) -> bool:
        """True if a token is this one, compared in constant time."""
        if self._digest is None or token is None:
            return False
        # Any str becomes bytes: a lone surrogate is refused like any other wrong character.
        return hmac.compare_digest(hashlib.sha256(token.encode("utf-8", "backslashreplace")).digest(), self._digest)


def bearer(header: bytes | None) -> str | None:
    """The token of an ``Authorization: Bearer`` header; None if it holds no possible token."""
    if header is None or header[:7].lower() != b"bearer ":
        return None
    token = header[7:]
    return token.decode("ascii") if 0 < len(token) <= LONGEST_TOKEN and token.isascii() else None


def basic_password(header: bytes | None) -> str | None:
    """The password of an ``Authorization: Basic`` header, whoever the user; None if there is none."""
    if header is None or header[:6].lower() != b"basic " or len(header) > 8 * LONGEST_TOKEN:
        return None
    try:
        _, colon, password = base64.b64decode(header[6:], validate=True).partition(b":")
    except binascii.Error:
        return None
    return password.decode("ascii") if colon and password.isascii() else None


def number_of(text: str) -> int | None:
    """The number 0..2³²−1 that a part of a path is in canonical decimal form; None if it is not such a number."""
    if not text.isascii() or not text.isdigit() or len(text) > 10 or (text[0] == "0" and text != "0"):
        return None
    number = int(text)
    return number if number < 1 << 32 else None


def names_tag(header: bytes, tag: bytes) -> bool:
    """True if an ``If-None-Match`` header names an entity tag."""
    return header == tag or header == b"*" or any(t.strip().removeprefix(b"W/") == tag for t in header.split(b","))


class Rate:
    """A limit of events a minute and in a burst for each key: a token bucket, kept as one number a key.

    The number is the time at which the bucket will be full again ("generic cell rate algorithm", ITU-T I.371). Keys
    whose buckets are full are forgotten: there are two dictionaries, and every time a bucket could have been
    filled the older one is dropped. Times are whole nanoseconds, so that nothing is rounded.

    Args:
        per_minute: How fast a bucket fills; infinite for no limit.
        burst: Events that a full bucket allows.
        clock: Monotonic clock in nanoseconds.
        most_keys: Approximate number of keys that are kept at once; beyond it the oldest are forgotten early.
    """

    def __init__(self, per_minute: float, burst: int, clock: Callable[[], int], most_keys: int = 65_536):
        if not per_minute > 0 or burst < 1:
            raise ConfigError(f"a rate needs a positive number a minute and a burst, got {per_minute} and {burst}.")
        self._interval = 0 if math.isinf(per_minute) else round(60e9 / per_minute)
        self._whole, self._clock, self._half = burst * self._interval, clock, most_keys // 2
        self._young: dict[Hashable, int] = {}
        self._old: dict[Hashable, int] = {}
        self._turn = clock() + self._whole

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def wait(self, key: Hashable, *, take: bool = True) -> float:
        """Take one event from a key's bucket.

        Args:
            key: Key of the bucket.
            take: False: only look whether an event is allowed.

        Returns:
            0.0 if an event is allowed; otherwise seconds until one is, and nothing is taken.
        """
        now = self._clock()
        if now >= self._turn or len(self._young) > self._half:
            self._old = self._young if now < self._turn + self._whole else {}
            self._young, self._turn = {}, now + self._whole
        full = self._young.get(key) or self._old.get(key) or now
        if full < now:
            full = now
        over = full + self._interval - now - self._whole
        if over > 0:
            return over / 1e9
        if take:
            self._young[key] = full + self._interval
        return 0.0


def network_of(address: str, ipv4_bits: int = 32, ipv6_bits: int = 64) -> str:
    """The network that an address is counted under.

    Args:
        address: The address.
        ipv4_bits: Bits of an IPv4 address that name its network.
        ipv6_bits: The same of IPv6. A /64 is one network cable's; a line of a household often has a /56 of them, one of
            an office a /48.
    """
    parsed = parse_address(address)
    if parsed is None:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        return f"{int(parsed) >> (128 - ipv6_bits):x}/{ipv6_bits}"
    return str(ipaddress.ip_network((parsed, ipv4_bits), strict=False).network_address)


def limited_network(address: str, ipv4_bits: int = 32, ipv6_bits: int = 64) -> str | None:
    """The network that an address is counted under where honest clients could be kept out; None: it has no limit.

    This machine's own addresses have none: a proxy that the server was not told of may stand behind them. Nor have
    clients without an address, such as those that come through a relay.
    """
    parsed = parse_address(address)
    return None if parsed is None or parsed.is_loopback else network_of(address, ipv4_bits, ipv6_bits)


class Guard:
    """Limits of requests of a hub or a platform.

    Args:
        device_per_minute: Requests of one device a minute; infinite for no limit.
        device_burst: Requests that a device may send at once after a pause.
        failures_per_minute: Wrong tokens of one address a minute, and at once, before it gets 429.
        enrolments_per_minute: Devices that may enrol in a minute, all together; and as many codes that back ends may
            ask for, so that who has the secret of one keeps no device from enrolling.
        enrolment_burst: Devices that may enrol at once; by default as many as in ten seconds.
        network_enrolments_per_minute: Devices that may enrol in a minute, and at once, from one network: an IPv4 /24
            or an IPv6 /48. Infinite for no limit.
        body_bytes: Largest body of a request in bytes.
        body_seconds: Longest time in which a body must arrive, in seconds.
        clock: Monotonic clock in nanoseconds.
    """

    def __init__(
        self,
        *,
        device_per_minute: float = 120.0,
        device_burst: int = 30,
        failures_per_minute: float = 30.0,
        enrolments_per_minute: float = 6000.0,
        enrolment_burst: int | None = None,
        network_enrolments_per_minute: float = math.inf,
        body_bytes: int = 1024,
        body_seconds: float = 10.0,
        clock: Callable[[], int] = time.monotonic_ns,
    ):
        if enrolment_burst is None:
            enrolment_burst = max(1, int(min(enrolments_per_minute / 6, 1e6)))
        self.body_bytes, self.body_seconds, self.clock = body_bytes, body_seconds, clock
        self.device = Rate(device_per_minute, device_burst, clock)
        failures = max(1, int(min(failures_per_minute, 1e6)))
        self.failure = Rate(failures_per_minute, failures, clock)
        self.admin_failure = Rate(failures_per_minute, failures, clock)
        self._enrolment = Rate(enrolments_per_minute, enrolment_burst, clock)
        self.codes = Rate(enrolments_per_minute, enrolment_burst, clock)
        at_once = max(1, int(min(network_enrolments_per_minute, 1e6)))
        self._network_enrolment = Rate(network_enrolments_per_minute, at_once, clock)
        self._flooded: int | None = None  # when the limit of all together last refused an enrolment

    def enrolment_wait(self, address: str | None) -> float:
        """Take one enrolment; returns 0.0, or the seconds until one is allowed, and then nothing is taken.

        Args:
            address: Of the client; None: its network is not counted.
        """
        network = None if address is None else limited_network(address, _IPV4_ENROLMENT_BITS, _IPV6_ENROLMENT_BITS)
        seconds = 0.0 if network is None else self._network_enrolment.wait(network, take=False)
        if seconds:
            return seconds
        seconds = self._enrolment.wait(None)
        if seconds:
            self._flooded = self.clock()
        elif network is not None:
            self._network_enrolment.wait(network)
        return seconds

    @property
    def is_flooded(self) -> bool:
        """True if the limit of all enrolments together kept a newcomer out within the last minute."""
        return self._flooded is not None and self.clock() - self._flooded < 60e9


class RefusedError(Exception):
    """A request is refused.

    Args:
        reason: The reason, such as ``"malformed"`` or ``"round-closed"``; ``"disconnected"``: nobody waits for it.
        more: Further entries of the refusal, such as what was expected.
    """

    def __init__(self, reason: str, **more: Any):
        super().__init__(reason)
        self.reason, self.more = reason, more


async def read_body(receive: Receive, most: int, seconds: float) -> bytes:
    """A request's whole body.

    Args:
        receive: ASGI's function that returns the next message.
        most: Largest allowed body in bytes.
        seconds: Longest allowed time.

    Raises:
        RefusedError: The body is larger or takes longer, or the client has disconnected.
    """
    body, more = b"", True
    try:
        async with asyncio.timeout(seconds):
            while more:
                try:
                    message = await receive()
                except Exception as error:
                    raise RefusedError("disconnected") from error
                if message["type"] != "http.request":
                    raise RefusedError("disconnected")
                part, more = message.get("body", b""), message.get("more_body", False)
                body = body + part if body else part
                if len(body) > most:
                    raise RefusedError("too-large")
    except TimeoutError:
        raise RefusedError("too-slow") from None
    return body


async def drop_body(receive: Receive) -> None:
    """Read for a moment what is still being sent: to close on a sending client would destroy the response."""
    left = _LINGER_BYTES
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))

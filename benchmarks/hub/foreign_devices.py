"""Devices that share no line with the package, written from the wire document: standard library only.

    python -I benchmarks/hub/foreign_devices.py NOTES ENROLMENT_TOKEN_FILE PORT [PORT …]

Each thread is a device: it enrols, asks for the model, and reports the same bytes until it has an answer, at whichever
port hears it. What was acknowledged, and which model was handed out for a round, goes to the file NOTES, a line each,
before the device goes on. Runs until it is terminated. The hub must have the default terms (messages of nine bytes).
"""

import hashlib
import http.client
import json
import os
import random
import struct
import sys
import threading
import time

DEVICES = 32
LARGEST = 2 * 2520  # of a sum: two interactions, each MaxRR times the least common multiple of 1 to 10


def ask(ports, method, path, token, body=b""):
    """Status and body of one request at any of the ports; status 0: nobody answered."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", random.choice(ports), timeout=10)
        connection.request(method, path, body, {"Authorization": "Bearer " + token})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""


def live(number, ports, enrolment, note):
    """One device."""
    random.seed(os.urandom(8))
    token = None
    while token is None:
        status, body = ask(ports, "POST", "/v1/enrol", enrolment)
        if status == 201:
            token = json.loads(body)["token"]
        else:
            time.sleep(0.1)
    done = -1
    while True:
        status, model = ask(ports, "GET", "/v1/model", token)
        if status == 401:
            note(kind="wrong", what="a token that was given is refused", device=number)
            return
        if status != 200 or model[0] != 0x21:
            time.sleep(0.1)
            continue
        round_ = struct.unpack("<I", model[1:5])[0]
        note(kind="model", round=round_, sha256=hashlib.sha256(model[5:]).hexdigest())
        if round_ <= done:
            time.sleep(0.05)
            continue
        report = struct.pack("<BIHH", 0x22, random.getrandbits(32), *(random.randint(0, LARGEST) for _ in range(2)))
        while True:
            status, body = ask(ports, "POST", f"/v1/report/{round_}", token, report)
            if status in (200, 201):
                note(kind="acknowledged", round=round_, device=token[:8], report=report.hex())
                break
            if status not in (0, 429, 503):
                note(kind="refused", status=status, why=json.loads(body).get("error"))
                break
            time.sleep(0.05)
        done = round_


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

        for number in range(DEVICES):
            threading.Thread(target=live, args=(number, [int(p) for p in ports], token, note), daemon=True).start()
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()

"""A driver of the Python SDK for `sdk/conformance/scenes.py`; the README says what a driver does."""

import json
import os
import time

from fedrank.deploy.device import Device

DOCUMENTS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]

hub, enrolment, folder, seconds = (os.environ[f"FEDRANK_{name}"] for name in ("HUB", "ENROLMENT", "FOLDER", "SECONDS"))
with Device(hub, enrolment, folder) as device:
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        device.sync()
        while device.wants_clicks:
            ranking = device.rank(DOCUMENTS)
            device.log_click(ranking, 0)
            device.finish(ranking)
        time.sleep(0.1)
    print(json.dumps(list(map(int, device.rank(DOCUMENTS).order))))

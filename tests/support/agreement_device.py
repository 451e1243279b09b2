"""One device of the agreement test, a process of its own: the SDK, with the draws that the simulator made for it.

Arguments: address of the hub, enrolment token, folder of the device, file with the draws. Leaves when its rounds are
over. NumPy and the SDK only.
"""

import sys
import time

import numpy as np
from fake_hub import ANYTHING

from fedrank.deploy.device import Device


def main(hub: str, enrolment: str, folder: str, file: str) -> int:
    draws = np.load(file)
    words = iter(draws["words"])  # of all rounds: the seed, then two words of each interaction in turn

    def given(shape):
        return np.array([next(words) for _ in range(int(np.prod(shape)))], np.uint32).reshape(shape)

    with Device(hub, enrolment, folder, _words=given, **ANYTHING) as device:
        for round_ in range(int(draws["rounds"])):
            end = time.monotonic() + 60
            while not device.wants_clicks:  # until the model of this round is there
                if time.monotonic() > end:
                    return 1
                device.sync()
                time.sleep(0.02)
            for k in range(int(draws["interactions"])):
                half, index = k % 2, k // 2
                query = draws["queries"][round_, half, index]
                part = slice(draws["offsets"][query], draws["offsets"][query + 1])
                ranking = device.rank(draws["features"][part])
                labels = draws["labels"][part][ranking.order[:10]]
                # One draw a rank decides about the click and about leaving after it, as for the simulated user.
                chance = (draws["clicks"][round_, half, index] >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
                for position, label in enumerate(labels):
                    if chance[position] < draws["click"][label]:
                        device.log_click(ranking, position)
                        if chance[position] < draws["leave"][label]:
                            break
                device.finish(ranking)
            while (
                not device.ledger() or device.ledger()[-1].round != round_ or device.ledger()[-1].outcome != "counted"
            ):
                if time.monotonic() > end:
                    return 1
                device.sync()
                time.sleep(0.02)
        print(sum(row.bytes for row in device.ledger()))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

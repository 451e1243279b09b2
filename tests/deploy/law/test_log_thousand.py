"""A thousand devices, and a hub that shows one of them another model: with witnesses, none uses it."""

import hashlib

import pytest
from log_worlds import LocalHub, aimed, as_body, cosign, device, entries_of, log_answer, signer_of, synced, witness

from fedrank.deploy.device import State


@pytest.mark.minutes
@pytest.mark.parametrize("how", ["not in the log", "in a log of its own"])
def test_none_of_a_thousand_devices_uses_a_model_made_for_it(tmp_path, how):
    with LocalHub(tmp_path / "hub") as hub:
        watching = [witness(tmp_path / name, hub, name=f"{name}.example") for name in "abc"]
        keys = [str(one.key) for one in watching]
        cosign(hub, *watching)
        entries = entries_of(hub)
        entries[-1] = b"\x02" + hashlib.sha256(aimed(hub)).digest()
        fork = as_body(*log_answer(entries, signer_of(hub)))

        def twist(path, status, headers, body):
            if path == "/v1/model":
                return 200, headers, aimed(hub)
            if path.startswith("/v1/log") and how == "in a log of its own":
                return 200, headers, fork
            return status, headers, body

        used = proven = 0
        for number in range(1000):
            one = device(hub, tmp_path / f"d{number}", twist if number == 617 else None, witnesses=keys)
            state = synced(one).state
            now = one._memory.round
            used += now is not None and now.weights[0] == 7
            proven += state is State.OK
            one.close()
        assert (used, proven) == (0, 999)

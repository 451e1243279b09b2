"""A hub that sold tokens as a former version did, and its devices, move to a hub of the present version."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from log_worlds import LocalHub, device, synced

from fedrank.core.errors import RunError
from fedrank.deploy.device import State
from fedrank.deploy.hub.audit import replay_log, write_model
from fedrank.deploy.hub.folder import HubFolder

FORMER = Path(__file__).with_name("hub_former_tokens")
TOLD = json.loads((FORMER / "weights.json").read_text())


@pytest.fixture
def former(tmp_path):
    """A copy of the hub of the former version."""
    return Path(shutil.copytree(FORMER, tmp_path / "former"))


def test_its_model_is_made_again_from_its_reports_and_it_is_not_served(former):
    before = (former / "hub.db").read_bytes()
    with pytest.raises(RunError, match="start-from"):
        HubFolder(former).open()
    found = replay_log(former)
    assert found.proven and (found.rounds, found.models, found.models_alike) == (3, 4, 4)
    assert found.weights.tolist() == np.float32(TOLD["weights"]).tolist()
    assert (former / "hub.db").read_bytes() == before


@pytest.mark.slow
def test_a_device_goes_on_at_the_new_hub_once_its_app_agrees_and_with_what_it_spent(former, tmp_path):
    write_model(former, replay_log(former).weights, tmp_path / "model.safetensors")
    (tmp_path / "device").mkdir()
    shutil.copy(former / "device.sqlite3", tmp_path / "device")
    settings = dict(tokens=1, interactions=2, mechanism="piecewise", epsilon=1.0)
    with LocalHub(tmp_path / "new", start_from=str(tmp_path / "model.safetensors"), **settings) as hub:
        assert np.frombuffer(hub.hub.view.model[5:], "<f4").tolist() == np.float32(TOLD["weights"]).tolist()
        one = device(hub, tmp_path / "device")  # at the address of the former one
        assert one.privacy()["epsilon_total"] == TOLD["epsilon_of_device"] == 3.0
        assert synced(one).state is State.TERMS_CHANGED and synced(one).state is State.TERMS_CHANGED
        offered = one.offered()
        assert offered is not None and offered["changed"]["wire"] == [2, 3]
        assert len(hub.hub.row.admission.devices) == 1  # the token of the try before went back
        assert one.agree() and synced(one).state is State.OK
        sent = 0
        for _ in range(3):
            for _ in range(8):
                sent += synced(one).sent
                while one.wants_clicks:
                    ranking = one.rank(np.eye(3))
                    one.log_click(ranking, 0)
                    one.finish(ranking)
            hub.next_round()
        assert sent >= 1 and one.privacy()["epsilon_total"] == 3.0 + sent
        one.close()

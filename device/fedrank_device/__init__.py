"""A device of a fedrank hub, for the app that runs on it. NumPy and the standard library only.

Four lines in an app::

    device = Device("https://hub.example.org", enrolment_token, folder)    # at the start
    ranking = device.rank(features)                                        # show documents[i] for i in ranking.order
    device.log_click(ranking, position)                                    # 0 is the document at the top
    device.sync()                                                          # now and then, from a thread or a timer

The modules below this package are those of fedrank that a device needs, under another name, so that both can be
installed side by side.
"""

from fedrank_device.core.errors import ConfigError, FedrankError
from fedrank_device.deploy.device import Device, LedgerRow, Ranking, State, Synced

__version__ = "0.1.0rc1"

__all__ = ["ConfigError", "Device", "FedrankError", "LedgerRow", "Ranking", "State", "Synced", "__version__"]

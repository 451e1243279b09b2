"""The command ``fedrank hub witness``: serves what cosigns the public logs of hubs and compares what others see."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from pathlib import Path
from typing import Any

from fedrank.cli.listen import Address, At, Port, log_to_stderr
from fedrank.cli.terminal import AsJson, Names, Switch, print_json
from fedrank.core.errors import RunError
from fedrank.core.words import printable
from fedrank.deploy.http.client import HttpClient


def witness(
    folder: Path = Path("witness"),
    /,
    *,
    logs: Names = (),
    name: str | None = None,
    check: Names = (),
    peers: Names = (),
    put_back: Names = (),
    every: float = 60.0,
    at: At = Address(),
    port: Port = 8760,
    allow_http: Switch = False,
    as_json: AsJson = False,
) -> None:
    """Be a witness: cosign the heads of hubs' logs as long as they only grow, and publish them. Ctrl-C stops it.

    With --check nothing is served: heads are compared once, and exit status 1 says that not all see the same log.
    With --put-back nothing is served either, as it acts once: stop the witness, and start it without afterwards.

    Args:
        folder: Of the witness; made if it is not there.
        logs: Public keys of logs to watch, as fedrank hub log shows them; those of earlier starts stay.
        name: Of a new witness, such as witness.example.org/1; random if nothing is said.
        check: Addresses of hubs and other witnesses whose heads are compared with this witness's.
        peers: The same, compared again and again while it is served.
        put_back: Public keys of logs whose hubs were put back from a backup: their next heads are cosigned, whatever
            was before. Only after their operators said why; the head from before is printed, for you to keep.
        every: Seconds between two such comparisons.
        at: Where it listens.
        allow_http: Plain http to other machines when heads are compared.
    """
    from fedrank_zoo.witness.witness import Witness, WitnessApp, WitnessFolder

    home = WitnessFolder(folder)
    if check:
        home.prepare(name, logs)
        with contextlib.closing(Witness(home)) as watcher:
            _check(watcher, check, allow_http, as_json)
        return
    log_to_stderr()
    with home.lock():
        home.prepare(name, logs)
        watcher, stop = Witness(home), threading.Event()
        if put_back:  # not at each start: a log that goes back a second time has to be judged again
            with contextlib.closing(watcher):
                for one in put_back:
                    print(f"{one} begins anew after", watcher.begin_anew(one), sep="\n")
            return

        def ready(url: str) -> None:
            home.write_urls({"witness": url})
            print(f"witness  {url}", f"key      {watcher.key}", f"logs     {len(watcher.keys)}", sep="\n", flush=True)

        if peers:
            threading.Thread(target=_gossip, args=(watcher, peers, allow_http, every, stop), daemon=True).start()
        try:
            at.serve(WitnessApp(watcher), port, ready)
        finally:
            stop.set()
            home.remove_urls("witness")
            watcher.close()


def _gossip(watcher: Any, peers: Names, allow_http: bool, every: float, stop: threading.Event) -> None:
    """Compare heads again and again; what is found stands on stderr and in the witness's folder."""
    from fedrank_zoo.witness.gossip import compare

    said: set[str] = set()
    while not stop.wait(max(every, 0.1)):
        try:
            found = compare(watcher, peers, functools.partial(HttpClient, allow_http=allow_http))
        except Exception as error:
            if not stop.is_set():
                print(f"fedrank: heads cannot be compared: {type(error).__name__}", file=sys.stderr)
            continue
        for line in [*(f"{origin}: SPLIT VIEW" for origin, _, _ in found.split), *found.wrong, *found.unproven]:
            if line not in said:
                said.add(line)
                print(f"fedrank: {printable(line)}", file=sys.stderr, flush=True)


def _check(watcher: Any, urls: Names, allow_http: bool, as_json: bool) -> None:
    from fedrank_zoo.witness.gossip import compare

    found = compare(watcher, urls, functools.partial(HttpClient, allow_http=allow_http))
    if as_json:
        print_json(
            {
                "heads": [{"where": where, "log": origin, "size": size} for where, origin, size in found.heads],
                "split": [{"log": origin, "heads": [one, other]} for origin, one, other in found.split],
                "wrong": found.wrong,
                "unproven": found.unproven,
                "silent": found.silent,
            }
        )
    else:
        for where, origin, size in found.heads:
            print(f"{printable(origin)}  {size:>9,}  {where}")
        for origin, one, other in found.split:
            print(printable(f"\nSPLIT VIEW of {origin}: it signed both\n\n{one}\n{other}", lines=True))
    if found.split:
        raise RunError(f"{found.split[0][0]}: shows different people different logs; both heads are kept.")
    if found.wrong or found.unproven or found.silent:
        silent = [f"{url}: shows no head" for url in found.silent]
        raise RunError("; ".join([*found.wrong, *found.unproven, *silent]) + ".")

"""Run command lines with the code of one checkout; started by ``record`` as a process of its own.

Reads JSON from standard input: ``{"root": CHECKOUT, "cases": [{"name": …, "commands": [[word, …], …]}, …]}``. Runs
every command in the current folder and leaves, for each case, ``NAME/status.json`` with the exit status of each command
and what it printed. Uses nothing of ``fedrank`` but its command line; ``"pages": false`` leaves pages undrawn.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from pathlib import Path


def main() -> None:
    """Run what standard input asks for."""
    task = json.load(sys.stdin)
    import fedrank
    from fedrank.cli.main import call

    if not task.get("pages", True):
        import fedrank.report.page

        fedrank.report.page.write_page = lambda folder: folder

    found = Path(fedrank.__file__).resolve().parents[1]
    if found != Path(task["root"]).resolve():
        raise SystemExit(f"fedrank comes from {found} instead of {task['root']}")
    for case in task["cases"]:
        done = []
        for words in case["commands"]:
            out, errors, began = io.StringIO(), io.StringIO(), time.process_time()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                try:
                    status = call(words)
                except Exception:
                    status = 1
                    traceback.print_exc()
            seconds = time.process_time() - began
            done.append({"status": status, "out": out.getvalue(), "errors": errors.getvalue(), "seconds": seconds})
        Path(case["name"], "status.json").write_text(json.dumps(done))
        failed = [one["errors"].strip() or one["out"].strip() for one in done if one["status"]]
        seconds = sum(one["seconds"] for one in done)
        print(
            f"{case['name']:28s} {seconds:6.1f} CPU-s{''.join(' FAILED: ' + text[-2000:] for text in failed)}",
            flush=True,
        )


if __name__ == "__main__":
    main()

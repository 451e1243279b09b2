"""Open Bandit's small sample as two platforms: a policy that both learn, judged off policy.

    python -m benchmarks.open_bandit FOLDER

FOLDER holds ``random.all.csv.xz`` and ``bts.all.csv.xz``. Each log is cut into two platforms by its users: A has those
with one of the two most frequent values of ``user_feature_2`` in the log, B the others. Both learn from the sums of the
first half of their rows in time, together or each from its own; policies are judged on the other half, against what
was shown there. Prints a table in Markdown. *Needed*: clicks of the judged rows of which (1.96 / 0.2)² = 96 would be
behind the estimate, were the rest the same; its interval is a fifth of it to either side then.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedrank.core.frame import Frame
from fedrank.data.lines import read_lines
from fedrank_zoo.slate_logs.estimates import Log, best, counts, judge, mean_rewards, read_logs, thompson

BY, COLUMNS = "user_feature_2", ("timestamp", "item_id", "position", "click", "propensity_score")
#: Clicks behind an estimate whose interval is a fifth of it to either side.
ENOUGH = (1.96 / 0.2) ** 2


def cut(file: Path, folder: Path) -> None:
    """Write the rows of a log as two, ``A.csv`` and ``B.csv``, by their users."""
    frame = Frame.from_csv(b"".join(read_lines(file)), (*COLUMNS, BY))
    frequent = {value for value, _ in Counter(frame[BY].tolist()).most_common(2)}
    for name in "AB":
        rows = [(value in frequent) == (name == "A") for value in frame[BY]]
        (folder / f"{name}.csv").write_text(frame[[i for i, one in enumerate(rows) if one]].select(COLUMNS).to_csv())


def rows_of(title: str, logs: tuple[Log, ...]) -> Iterator[str]:
    """Rows of the table of one log that is cut."""
    halves = [len(log) // 2 for log in logs]
    earlier = [log.part(0, half) for log, half in zip(logs, halves, strict=True)]
    later = [log.part(half, len(log)) for log, half in zip(logs, halves, strict=True)]
    for of, learnt in (("both", earlier), ("A", earlier[:1]), ("B", earlier[1:])):
        counted = counts(learnt)
        for name, policy in (("best-10", best(mean_rewards(counted), 10)), ("thompson", thompson(counted))):
            _, one = judge(later, policy)
            low, high = one.gain.low, one.gain.high
            assert low is not None and high is not None
            rate, clicks = one.logged.value, one.logged.value * one.rows
            needed = clicks * ENOUGH / one.effective_clicks
            value = 1000 * one.estimates["dr"].value
            yield (
                (
                    f"| {title} | {name}, {of} | {1000 * rate:.1f} | {value:.1f} | "
                    f"{1000 * one.gain.value:+.1f} ({1000 * low:+.1f} to {1000 * high:+.1f}) | {clicks:.0f} | "
                    f"{one.effective_clicks:.0f} | {needed:,.0f} |"
                )
                .replace("-", "−")
                .replace("best−", "best-")
            )


def main() -> None:
    """Cut, learn, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    print("| log | learnt from | logged | dr | gain (95 %) | clicks | behind it | needed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for title, name in (("at random", "random"), ("Thompson", "bts")):
        with tempfile.TemporaryDirectory() as folder:
            cut(given.folder / f"{name}.all.csv.xz", Path(folder))
            logs = read_logs([folder])
            for row in rows_of(title, logs):
                print(row)


if __name__ == "__main__":
    main()

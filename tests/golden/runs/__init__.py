"""Small runs of every protocol and page whose numbers are kept, to be compared before and after a change of the code.

A *case* (``cases.py``) is one or more ``fedrank`` command lines. ``record`` runs the cases with the code of a checkout
and writes a *recording*: a JSON file with digests and summaries of weights, metrics, ledgers, privacy accounts, other
result files, printed results and the tables of pages. ``compare`` lays two recordings side by side.

Programs are compiled fast instead of well, which takes a fifth of the time; ``--optimised`` compiles them as a run
does. Recordings of the two ways differ in last digits, and are compared with their like only.

Before and after a change, on one machine (the numbers of the four essential kinds, weights, metrics, ledger and
privacy, must be equal bit for bit)::

    git worktree add /tmp/before COMMIT
    python -m tests.golden.runs.record --root /tmp/before --out /tmp/before.json
    python -m tests.golden.runs.record --root .           --out /tmp/after.json
    python -m tests.golden.runs.compare /tmp/before.json /tmp/after.json --exact

Some of the cases, against the recording in the repository (``--exact`` only on the kind of machine that made it)::

    python -m tests.golden.runs.record --only es-linear sketch-plain --out /tmp/some.json
    python -m tests.golden.runs.compare tests/golden/runs/recorded.json /tmp/some.json

``--pages`` lets differences of pages, printed results and other files count as well. When a file, column, measure,
exchange or setting is renamed on purpose, add the pair to ``renames.py``; when a flag is renamed, change the case's
command line. Neither changes the recording. When a number changes on purpose, record anew, in a commit that says why::

    python -m tests.golden.runs.record --only NAME --update tests/golden/runs/recorded.json
"""

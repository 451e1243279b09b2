"""Versions of a hub's log: each step leads from one version of the tables to the next.

A log of an earlier version is brought to the present one when a hub starts, in one transaction, after a copy of it was
put beside it; ``fedrank replay`` reads it as it is. A log of a later version is refused.

To change the tables, append a step, and never touch those that are here: logs exist that were made by them. A step is
SQL that SQLite runs, each statement ended by a semicolon at the end of a line.
"""

from __future__ import annotations

_1_DEVICES_ROUNDS_REPORTS = """
CREATE TABLE hub (name TEXT NOT NULL, settings TEXT NOT NULL) STRICT;
CREATE TABLE device (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice
    token   BLOB NOT NULL UNIQUE,               -- SHA-256
    day     INTEGER NOT NULL                    -- of enrolment, days since 1970
) STRICT;
CREATE TABLE round (
    number  INTEGER PRIMARY KEY,
    state   TEXT NOT NULL CHECK (state IN ('open', 'closed', 'applied')),
    opened  REAL NOT NULL,                      -- seconds since 1970
    closed  REAL,
    seconds REAL,                               -- how long it was open, by a clock that does not jump
    model   BLOB,                               -- SHA-256 of the weights that are asked about
    question BLOB,                              -- a coordinator's, which devices are asked; else the hub makes it
    reports INTEGER,
    reward  REAL,                               -- mean privatised reward, privatisation's shift taken out
    error   REAL                                -- its standard error
) STRICT;
CREATE TABLE report (
    round   INTEGER NOT NULL REFERENCES round(number),
    device  INTEGER NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (round, device)
) STRICT, WITHOUT ROWID
"""

#: The steps in their order. The version of a log, in ``PRAGMA user_version``, is the number of steps it has seen.
STEPS: tuple[str, ...] = (_1_DEVICES_ROUNDS_REPORTS,)

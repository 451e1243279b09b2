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

_2_CREDENTIALS_CHECKS = """
ALTER TABLE round ADD COLUMN devices INTEGER;
CREATE TABLE credential (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    secret  BLOB NOT NULL UNIQUE,               -- SHA-256
    devices INTEGER NOT NULL,                   -- most that may enrol with it within its window
    days    INTEGER NOT NULL,                   -- its window; 0: of all time
    code_minutes INTEGER NOT NULL,              -- how long its codes are good; 0: it has none
    made    INTEGER NOT NULL,                   -- day, days since 1970
    revoked INTEGER                             -- day
) STRICT;
CREATE TABLE code (                             -- single use: deleted when a device enrols with it
    secret  BLOB PRIMARY KEY,                   -- SHA-256
    credential INTEGER NOT NULL REFERENCES credential(number),
    good_until REAL NOT NULL                    -- seconds since 1970
) STRICT, WITHOUT ROWID;
CREATE TABLE admission (                        -- devices that enrolled, those that have left included
    name    BLOB NOT NULL,                      -- of a credential, or hash of an attested identity
    day     INTEGER NOT NULL,
    devices INTEGER NOT NULL,
    PRIMARY KEY (name, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE member (                           -- the credential of each enrolled device that had one
    device  INTEGER PRIMARY KEY,
    credential INTEGER NOT NULL REFERENCES credential(number)
) STRICT;
CREATE TABLE judgement (                        -- what the checks of an applied round said
    round   INTEGER PRIMARY KEY REFERENCES round(number),
    best    INTEGER NOT NULL,                   -- round of the model that the newest was compared with
    checks  INTEGER NOT NULL,
    mean    REAL NOT NULL,                      -- how much better the newest was, -1 to 1
    error   REAL,                               -- its standard error
    promoted INTEGER NOT NULL                   -- 1: the newest is the best from then on
) STRICT;
CREATE TABLE watch (                            -- one row: the sequential tests after the last applied round
    state   TEXT NOT NULL
) STRICT;
CREATE TABLE halt (
    round   INTEGER PRIMARY KEY,                -- the round that was not opened
    best    INTEGER NOT NULL,                   -- it goes on from the model of this round
    halted  REAL NOT NULL,                      -- seconds since 1970
    resumed REAL
) STRICT
"""

_3_LOG = """
CREATE TABLE entry (
    number  INTEGER PRIMARY KEY,                -- from 0
    kind    INTEGER NOT NULL,                   -- 1: terms, 2: SHA-256 of a model message, 3: an issuer's key
    data    BLOB NOT NULL
) STRICT;
CREATE TABLE node (
    level   INTEGER NOT NULL,                   -- of a complete subtree of 2 to this power leaves; 1 or more
    number  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    PRIMARY KEY (level, number)
) STRICT, WITHOUT ROWID
"""

#: The steps in their order. The version of a log, in ``PRAGMA user_version``, is the number of steps it has seen.
STEPS: tuple[str, ...] = (_1_DEVICES_ROUNDS_REPORTS, _2_CREDENTIALS_CHECKS, _3_LOG)

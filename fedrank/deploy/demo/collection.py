"""The documents of the demo: functions and classes of Python's standard library, from their docstrings."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import NamedTuple

_NAMES = """
argparse array ast asyncio base64 bisect builtins bz2 calendar cmath codecs collections colorsys configparser
contextlib copy csv ctypes datetime decimal difflib dis email enum fileinput fnmatch fractions functools
getpass gettext glob graphlib gzip hashlib heapq hmac html http http.client http.cookies imaplib importlib
inspect io ipaddress itertools json keyword linecache locale logging lzma mailbox math mimetypes
multiprocessing operator os os.path pathlib pickle pkgutil platform plistlib poplib pprint queue random re
sched secrets select shelve shlex shutil signal smtplib socket sqlite3 ssl stat statistics string subprocess
sys tarfile tempfile textwrap threading time timeit token tokenize traceback types typing unicodedata unittest
urllib.parse urllib.request uuid warnings wave weakref webbrowser xml.etree.ElementTree zipfile zlib zoneinfo
"""
#: Modules whose functions and classes are searched; those that this interpreter lacks are left out.
MODULES = tuple(_NAMES.split())
#: Docstrings below this length say nothing that could be searched.
_SHORTEST = 20
#: Characters of a docstring that are shown and searched.
_LONGEST = 700


class Entry(NamedTuple):
    """A function or class.

    Attributes:
        name: Such as ``"csv.reader"``.
        kind: ``"function"`` or ``"class"``.
        summary: First paragraph of its docstring that is no signature.
        body: The rest of the docstring, at most 700 characters.
    """

    name: str
    kind: str
    summary: str
    body: str


def entries() -> list[Entry]:
    """The documents, by name."""
    found: dict[str, Entry] = {}
    for module in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                there = importlib.import_module(module)
        except ImportError:
            continue
        for name in getattr(there, "__all__", None) or [one for one in dir(there) if not one.startswith("_")]:
            thing = getattr(there, name, None)
            if not (inspect.isroutine(thing) or inspect.isclass(thing)):
                continue
            home = str(getattr(thing, "__module__", "") or module).lstrip("_")
            if home.partition(".")[0] != module.partition(".")[0] and home not in ("builtins", "posixpath", "posix"):
                continue  # imported from another module, which has it under its own name
            text = inspect.getdoc(thing) or ""
            if len(text) < _SHORTEST:
                continue
            full = name if module == "builtins" else f"{module}.{name}"
            found[full] = _entry(full, "class" if inspect.isclass(thing) else "function", text)
    return sorted(found.values())


def _entry(name: str, kind: str, text: str) -> Entry:
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    # Functions written in C begin with their signature.
    plain = [part for part in paragraphs if not part.startswith(f"{name.rpartition('.')[2]}(")] or paragraphs
    rest = "\n".join(part for part in paragraphs if part is not plain[0])
    return Entry(name, kind, plain[0][:_LONGEST], rest[:_LONGEST])

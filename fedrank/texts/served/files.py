"""Documents in files as companies have them: what each kind of file gives as title, text, date and author.

=====================================  ===============================================================================
``.txt``                               one document; the first line is its title if more follows
``.md``, ``.markdown``                 the same without marks; front matter in YAML (``title``, ``date``, ``author``)
``.html``, ``.htm``                    the text of ``<main>``, each ``<article>`` or the page, without navigation
``.pdf``, ``.docx``                    their text; title, author and date from their properties
``.eml``, ``.mbox``                    a mail each, without attachments: the subject is its title
``.csv``, ``.tsv``                     a row each, with a column ``text`` (``body``, ``content``), or all columns
``.jsonl``                             an object a line with ``id``, ``title`` and ``text``, as collections of BEIR have
=====================================  ===============================================================================

Text may be in any encoding. A file that cannot be read, or holds what another file holds, is left out and named.
HTML, PDF and DOCX are read by a process with limits of time and memory, so that no file stops its owner.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import email
import email.policy
import functools
import hashlib
import io
import json
import logging
import mailbox
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from fedrank.core.errors import FormatError, MissingDataError, MissingExtraError
from fedrank.core.lazy import OptionalModule, require
from fedrank.texts.served.documents import LONGEST_ID, Document, document_of
from fedrank.texts.served.rights import CLOSED, readers_text

bs4 = OptionalModule("bs4", "documents", "Text of HTML")
charset_normalizer = OptionalModule("charset_normalizer", "documents", "Text that is not in UTF-8")
docx = OptionalModule("docx", "documents", "Text of a DOCX file")
pypdf = OptionalModule("pypdf", "documents", "Text of a PDF file")
yaml = OptionalModule("yaml", "documents", "Front matter of Markdown")

#: Modules that a reader needs.
_NEEDED = {"_of_html": ("bs4",), "_of_pdf": ("pypdf",), "_of_docx": ("docx",)}
#: Parts of a page that are not its text.
_NO_TEXT = ("script", "style", "noscript", "template", "nav", "header", "footer", "aside")
_NO_TEXT += ("button", "datalist", "input", "select", "textarea")
#: Titles in a PDF's properties that name its source and not its subject.
_NO_TITLE = re.compile(r"^microsoft \w+ - |^untitled|\.(docx?|pdf|tex|indd|rtf|odt|html?)$", re.IGNORECASE)
#: A line of what looks like front matter that is about readers, however it is written; within its first characters.
_NAMES_READERS = re.compile(r"(?ism)\A(?:---|\+\+\+).*?^[\s\-\"']*readers?[\"']?\s*[:=]")
_LONGEST_FRONT = 4000
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
#: Tags in Markdown that are no text; others, such as ``List<String>``, are.
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|center|cite|code|col|colgroup|dd|del|details|div|dl|dt|em|figcaption|figure|font"
    r"|h[1-6]|hr|i|iframe|img|input|ins|kbd|li|mark|ol|p|picture|pre|q|s|samp|script|section|small|source|span|strike"
    r"|strong|style|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul|var|video|wbr)\b[^<>]*>",
    re.IGNORECASE,
)
#: Names of columns and keys, lower case, the first one present counts.
_IDS, _TITLES = ("id", "_id"), ("title", "subject", "headline")
_TEXTS = ("text", "body", "content", "description")
#: Encodings of files that are no UTF-8, as offices have them; share of odd characters from which others are tried.
_ENCODINGS = [f"cp125{page}" for page in range(7)] + ["iso8859_2", "koi8_r", "koi8_u", "cp874", "utf_16", "utf_32"]
_ENCODINGS += ["cp932", "euc_jp", "iso2022_jp", "gb18030", "big5", "cp949"]
_CHAOS = 0.09
#: What a text of Central Europe looks like in the Western page.
_NOT_WESTERN = re.compile(r"[ªº][^\W\d_]")
#: Largest file that is read as a whole, in bytes, and longest cell of a table, in characters.
_LARGEST, _LONGEST_CELL = 256 << 20, 10_000_000
#: Characters of a page, and of the text of a PDF or DOCX file, that are read: the rest is named as left out.
_LONGEST_PAGE = 2_000_000
#: Beginnings and ends of what the parser looks through again and again where it does not end.
_UNENDED = ((re.compile("<!--"), "-->"), (re.compile("<[a-zA-Z/!?]"), ">"))

#: Seconds for which a file may be read, and bytes of memory of the process that does.
_SECONDS, _MEMORY = 60.0, 1 << 30

#: Name of the file that says who may read the files of its folder and below.
READERS_FILE = "READERS"
#: Title, text, and what is known about a document.
_Parts = tuple[str, str, dict[str, str]]
#: Reads one document of a file: its id, and these parts.
_Row = Callable[[], tuple[str, str, str, dict[str, str]]]


def read_documents(path: Path, problems: list[str] | None = None) -> Iterator[Document]:
    """Documents of a file, or of all files below a folder.

    Args:
        path: The file or folder. A document's id is the file's path within the folder, with a number or name behind it
            where a file holds several, or the id that the file gives.
        problems: Gets a line about each file, row or copy that is left out; None: the first one is an error.

    Raises:
        MissingDataError: There is nothing at the path, or nothing that can be read.
        MissingExtraError: A kind of file needs the extra ``documents``, which is not installed.
        FormatError: Something cannot be read, and ``problems`` is None.
    """
    if path.is_dir():
        files, left_out = files_below(path)
        if not files:
            raise MissingDataError(f"{path}: has no file of these kinds: {' '.join(READERS)}.")
        if problems is not None:
            problems += left_out
        readers = readers_below(path, problems)
        found = (
            document for name, file in files.items() for document in read_file(file, name, problems, readers(name))
        )
    elif path.is_file():
        found = read_file(path, path.name, problems, readers_below(path.parent, problems)(path.name))
    else:
        raise MissingDataError(f"{path}: there is no such file or folder.")
    if problems is None:
        yield from found
        return
    known: dict[bytes, str] = {}
    ids = set[str]()
    for document in found:
        first = known.setdefault(digest_of(document), document.id)
        if document.id in ids:
            problems.append(f"{document.id}: stands twice; the first one counts")
        elif first != document.id:
            problems.append(f"{document.id}: is a copy of {first}")
        else:
            ids.add(document.id)
            yield document


def files_below(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The files below a folder that can be read, by their paths in it, in order; and a line about what is left out.

    Hidden files and folders, whose names begin with a dot, are passed over, as are links to them.
    """
    root, files, left_out = folder.resolve(), dict[str, Path](), list[str]()
    others = Counter[str]()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if _is_hidden(name) or not file.is_file() or file.name == READERS_FILE:
            continue
        shown, kind, real = name.encode("utf-8", "backslashreplace").decode(), file.suffix.lower(), file.resolve()
        if kind not in READERS:
            others[kind or "none"] += 1
        elif not real.is_relative_to(root):
            left_out.append(f"{shown}: is a link to a file outside the folder")
        elif shown != name:
            left_out.append(f"{shown}: its name is not UTF-8; rename it")
        elif not _is_hidden(real.relative_to(root).as_posix()):
            files[name] = file
    if others:
        kinds = ", ".join(sorted(others)).encode("utf-8", "backslashreplace").decode()
        left_out.append(f"{others.total()} files of other kinds ({kinds})")
    return files, left_out


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def digest_of(document: Document) -> bytes:
    """16 bytes that two documents share if readers are, and title and text but for white space and case."""
    text = " ".join(f"{document.title} {document.body}".casefold().split())
    if "readers" in document.about:
        text = f"{text}\0{document.about['readers']}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def readers_below(root: Path, problems: list[str] | None) -> Callable[[str], str]:
    """The readers of files that name none themselves, by their paths below a folder; empty: they name none.

    They stand in the file ``READERS`` of the same folder, or else of the nearest one above, outside the folder too. One
    that cannot be read keeps the files from all.

    Args:
        root: The folder.
        problems: Gets a line about each such file that cannot be read; None: it is an error.
    """

    @functools.cache
    def of(folder: Path) -> str:
        file = folder / READERS_FILE
        try:
            if os.path.lexists(file):  # a folder of this name, or a link to nothing, cannot be read
                return readers_text(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, FormatError) as error:
            if problems is None:
                raise FormatError(f"cannot be read ({error}).", file) from error
            problems.append(f"{file}: cannot be read ({error}); the files below its folder have no readers")
            return CLOSED
        return "" if folder == folder.parent else of(folder.parent)

    return lambda name: of((root.resolve() / name).parent)


def read_file(path: Path, name: str, problems: list[str] | None = None, readers: str = "") -> Iterator[Document]:
    """The documents of one file; arguments and errors as of :func:`read_documents`.

    Args:
        path: The file.
        name: Its path within the owner's folder.
        problems: As of :func:`read_documents`.
        readers: Who may read documents that do not say it, as of :func:`~fedrank.texts.served.rights.readers_text`.
    """
    kind = path.suffix.lower()
    rows = READERS.get(kind, _read_lines)(path, name)
    while True:
        try:
            row = next(rows, None)
        except Exception as error:  # readers of other people's formats raise what they like
            _leave_out(name, path, error, problems)
            return
        if row is None:
            return
        try:
            id, title, body, about = row()
            about = {"path": name, "type": kind[1:], **({"readers": readers} if readers else {}), **about}
            document = document_of(id, title, body, about)
            _check(document, row, path)
            if problems is not None and "cut" in about:
                problems.append(f"{name}: {about['cut']}")
        except Exception as error:
            _leave_out(name, path, error, problems)
        else:
            yield document


def _leave_out(name: str, path: Path, error: Exception, problems: list[str] | None) -> None:
    if isinstance(error, MissingExtraError):
        raise error
    if problems is None:
        raise error if isinstance(error, FormatError) else FormatError(f"cannot be read ({error}).", path) from error
    said = " ".join(str(error).removeprefix(f"{path}: ").removeprefix(f"{path}:").split())
    problems.append(f"{name}: {said or type(error).__name__:.200}")


def _check(document: Document, row: Any, path: Path) -> None:
    """Refuse a document whose id or text cannot be kept."""
    line = row.args[0] if isinstance(row, functools.partial) and isinstance(row.args[0], int) else None
    try:
        size = len(document.id.encode())
        "".join(document[:3]).encode()
    except UnicodeEncodeError as error:
        raise FormatError("has half of a surrogate pair, which is no text in UTF-8.", path, line) from error
    if not 0 < size <= LONGEST_ID:
        raise FormatError(f"the id must have 1 to {LONGEST_ID} bytes, got {size}.", path, line)


def id_of(name: str) -> str:
    """The name where it is short enough for an id; else its end, with a hash of all of it."""
    if len(name.encode("utf-8", "surrogatepass")) <= LONGEST_ID:
        return name
    tail = name.encode("utf-8", "replace")[-(LONGEST_ID - 20) :].decode("utf-8", "ignore")
    return f"{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}…{tail}"


def _decode(raw: bytes) -> str:
    """Text of bytes in any encoding.

    Raises:
        FormatError: They are no text.
    """
    marks = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
    for encoding in (*(encoding for mark, encoding in marks if raw.startswith(mark)), "utf-8"):
        try:
            text = raw.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    else:
        text = _guess(raw)
    if "\0" in text:
        raise FormatError("is not text: it has bytes of 0.")
    return text


def _guess(raw: bytes) -> str:
    """Text of bytes in an encoding that has to be guessed: of those in use first, Western European where in doubt."""
    matches = charset_normalizer.from_bytes(raw, cp_isolation=_ENCODINGS)
    best = matches.best()
    if best is None or best.chaos > _CHAOS:
        best = charset_normalizer.from_bytes(raw).best() or best
    if best is None:
        raise FormatError("is not text in any encoding that is known.")
    for one in matches:  # of pages that read it as well the library names the first
        likely = one.chaos <= best.chaos + _CHAOS and one.coherence >= best.coherence - 0.01
        if one.encoding == "cp1252" and likely and not _NOT_WESTERN.search(str(one)):
            return str(one)
    return str(best)


def _split_title(text: str) -> tuple[str, str]:
    """Title and text: the first line is the title if more follows."""
    title, _, body = text.strip().partition("\n")
    return (title.lstrip("# "), body) if body else ("", title)


def _of_text(raw: bytes) -> _Parts:
    return *_split_title(_decode(raw)), {}


def _without_tags(html: str) -> str:
    """The text of HTML in Markdown: comments, scripts and styles that end are left out, and tags that HTML knows."""
    for start, end in (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>")):
        parts, at = list[str](), 0
        while (first := html.find(start, at)) >= 0 and (last := html.find(end, first)) >= 0:
            parts.append(html[at:first])
            at = last + len(end)
        html = "".join(parts) + html[at:]
    return _TAG.sub("", html)


def _text_of_token(token: Any) -> str:
    """Text of a part of a paragraph in Markdown."""
    if token.type == "html_inline":
        return _without_tags(token.content)
    return "\n" if token.type.endswith("break") else token.content


def _without_marks(markdown: str) -> str:
    """The text of Markdown without marks and tags: paragraphs, headings and items apart, a table's row a line.

    A text of more than two million characters stays as it is written.
    """
    if len(markdown) > _LONGEST_PAGE:
        return markdown
    from markdown_it import MarkdownIt

    blocks: list[str] = []
    outside = blocks
    for token in MarkdownIt("commonmark", {"maxNesting": 100}).enable("table").parse(markdown):
        if token.type == "tr_open":
            outside, blocks = blocks, []
        elif token.type == "tr_close":
            outside.append("\t".join(blocks))
            blocks = outside
        elif token.type == "inline":
            blocks.append("".join(map(_text_of_token, token.children or ())))
        elif token.type == "html_block":
            blocks += [text] if (text := _without_tags(token.content).strip()) else []
        elif token.type in ("fence", "code_block"):
            blocks.append(token.content.rstrip())
    return "\n\n".join(blocks)


def _of_markdown(raw: bytes) -> _Parts:
    text = "\n".join(_decode(raw).splitlines())
    front = _FRONT.match(text)
    given = yaml.safe_load(front[1]) if front else {}
    fields = _fold_keys(given if isinstance(given, dict) else {})
    if "readers" not in fields and _NAMES_READERS.search(text.lstrip()[:_LONGEST_FRONT]):
        raise FormatError("begins as front matter that names readers, and cannot be read as such.")
    body = _without_marks(text[front.end() :] if front else text)
    if not front:
        return *_split_title(body), {}
    title = _shown(fields.get("title"))
    if not title:
        title, body = _split_title(body)
    about = _about(fields.get("author", fields.get("authors")), fields.get("date"))
    return title, body, {**about, **_readers(fields.get("readers"))}


def _fold_keys(given: Mapping[Any, Any]) -> dict[str, Any]:
    """The entries whose keys are texts, by key in lower case."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = key.strip().lower() if isinstance(key, str) else ""
        if name == "readers" and name in found:
            raise FormatError("names readers twice.")
        found[name] = value
    return found


class _Reader:
    """A process that reads files of kinds whose parsers can be made to run or grow without end."""

    def __init__(self):
        self._lock, self._process = threading.Lock(), None

    def parse(self, name: str, raw: bytes) -> _Parts:
        """Parts of a file that a function of this module reads.

        Raises:
            FormatError: It raised an error, or needs more time or memory than there is.
        """
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None and process.stdout is not None
            late = threading.Event()
            timer = threading.Timer(_SECONDS, lambda: (late.set(), process.kill()))
            timer.start()
            try:
                process.stdin.write(f"{name} {len(raw)}\n".encode() + raw)
                process.stdin.flush()
                found = json.loads(process.stdout.readline())
            except (OSError, ValueError) as error:
                process.kill()
                self._process = None
                why = f"takes more than {_SECONDS:g} seconds" if late.is_set() else "ended the process that reads files"
                raise FormatError(f"{why}, and is not read.") from error
            finally:
                timer.cancel()
                timer.join()
                if late.is_set():
                    self._process = None
        if "error" in found:
            raise FormatError(found["error"])
        title, body, about = found["parts"]
        return title, body, about

    def _start(self) -> subprocess.Popen[bytes]:
        code = "from fedrank.texts.served.files import serve_reads; serve_reads()"
        # No module comes from the folder in which its owner works, which may be that of the documents.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command, pipe = [sys.executable, "-P", "-c", code, str(_MEMORY)], subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, cwd=os.sep)
        assert process.stdout is not None
        process.stdout.readline()  # its first line says that it has started
        return process


_reader = _Reader()


def _limit_reading(read: Callable[[Any], _Parts]) -> Callable[[Any], _Parts]:
    """The same function, run by a process with limits."""

    @functools.wraps(read)
    def read_within_limits(raw: bytes | str) -> _Parts:
        for module in _NEEDED[read.__name__]:
            require("documents", f"Text of {read.__name__.removeprefix('_of_')}", module)
        return _reader.parse(
            read.__name__, raw if isinstance(raw, bytes) else codecs.BOM_UTF8 + raw.encode("utf-8", "replace")
        )

    return read_within_limits


def serve_reads() -> None:
    """Read what comes on standard input, within a memory limit: the process that :class:`_Reader` starts."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a parser prints is no answer
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = int(sys.argv[-1])
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    logging.disable()  # what a parser complains of names no file; what it cannot read it raises
    out.write(b"ready\n")
    out.flush()
    while line := sys.stdin.buffer.readline():
        name, size = line.split()
        raw = sys.stdin.buffer.read(int(size))
        try:
            title, text, about = globals()[name.decode()].__wrapped__(raw)
            if len(text) > _LONGEST_PAGE:
                about["cut"] = f"only the first {_LONGEST_PAGE:,} of {len(text):,} characters were read"
            found: dict[str, Any] = {"parts": (title[:_LONGEST_PAGE], text[:_LONGEST_PAGE], about)}
        except MemoryError:
            found = {"error": f"needs more than {int(sys.argv[-1]) >> 20} MiB of memory, and is not read."}
        except Exception as error:  # readers of other people's formats raise what they like
            found = {"error": str(error) or type(error).__name__}
        out.write(json.dumps(found).encode() + b"\n")
        out.flush()


@_limit_reading
def _of_html(raw: bytes | str) -> _Parts:
    text = raw if isinstance(raw, str) else bs4.UnicodeDammit(raw, is_html=True).unicode_markup or ""
    whole, text = len(text), text[:_LONGEST_PAGE]
    for begin, end in _UNENDED:
        if found := begin.search(text, text.rfind(end) + 1):
            text = text[: found.start()]
    page = bs4.BeautifulSoup(text, "html.parser")

    def find_meta(*names: str) -> str:
        found = (page.find("meta", {key: name}) for name in names for key in ("name", "property"))
        return next((str(one.get("content", "")) for one in found if one), "")

    about = _about(find_meta("author"), find_meta("article:published_time", "date", "dcterms.date"))
    if whole > _LONGEST_PAGE:
        about["cut"] = f"only the first {_LONGEST_PAGE:,} of {whole:,} characters of HTML were read"
    heading = page.find("h1")
    title = page.title.get_text(" ") if page.title else heading.get_text(" ") if heading else ""
    for one in page.find_all((*_NO_TEXT, "title")):
        one.decompose()
    articles = [one for one in page.find_all("article") if not one.find_parent("article")]
    main = page.find("main")
    parts = [main] if main else articles or [page.body or page]
    text = "\n".join(part.get_text("\n") for part in parts)
    return title, "\n".join(line for part in text.split("\n") if (line := part.strip())), about


@_limit_reading
def _of_pdf(raw: bytes) -> _Parts:
    file = pypdf.PdfReader(io.BytesIO(raw))
    if file.is_encrypted and not file.decrypt(""):
        raise FormatError("is encrypted.")
    properties = file.metadata
    text = "\n\n".join(page.extract_text() for page in file.pages)
    if not text.strip():
        raise FormatError("has no text; is it a scan?")
    title = _shown(properties.title) if properties else ""
    title = "" if _NO_TITLE.search(title) else title
    return title, text, _about(properties.author, properties.creation_date) if properties else {}


@_limit_reading
def _of_docx(raw: bytes) -> _Parts:
    file = docx.Document(io.BytesIO(raw))
    lines: list[str] = []
    title = _shown(file.core_properties.title)
    for block in file.iter_inner_content():
        if hasattr(block, "rows"):
            lines += (" | ".join(cell.text for cell in row.cells) for row in block.rows)
        elif not title and block.style is not None and block.style.name in ("Title", "Heading 1"):
            title = block.text
        else:
            lines.append(block.text)
    properties = file.core_properties
    return title, "\n".join(lines), _about(properties.author, properties.modified or properties.created)


def _of_mail(raw: bytes) -> _Parts:
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    part = message.get_body(("plain", "html"))
    text, cut = "", {}
    if part is not None:
        data = part.get_payload(decode=True)
        try:
            text = str(part.get_content(errors="strict"))
        except (LookupError, UnicodeError):  # a charset that is unknown, or is not that of the text
            text = _decode(data if isinstance(data, bytes) else b"")
        if part.get_content_subtype() == "html":
            _, text, known = _of_html(text)
            cut = {"cut": known["cut"]} if "cut" in known else {}
    sent = message.get("date")
    about = _about(message.get("from"), getattr(sent, "datetime", None))
    return _shown(message.get("subject")), text, {**about, **cut}


def _about(author: Any, date: Any) -> dict[str, str]:
    """Author and date, where they are known; a date is a day where it can be read as one."""
    day = date.isoformat()[:10] if hasattr(date, "isoformat") else _shown(date)
    return {key: value[:200] for key, value in (("author", _shown(author)), ("date", day)) if value}


def _readers(given: Any) -> dict[str, str]:
    """The readers that a document names, if it names any."""
    return {} if given is None else {"readers": readers_text(given)}


def _shown(value: Any) -> str:
    """A value, or a list of values, in a line; nothing for what is nested, which may be without end in YAML."""
    if isinstance(value, list):
        return ", ".join(shown for one in value if not isinstance(one, list) and (shown := _shown(one)))
    return "" if value is None or isinstance(value, dict | set | tuple) else " ".join(str(value).split())


def _whole(read: Callable[[bytes], _Parts]) -> Callable[[Path, str], Iterator[_Row]]:
    """The reader of files that are one document; their date is that of the file unless they give another."""

    def rows(path: Path, name: str) -> Iterator[_Row]:
        def row() -> tuple[str, str, str, dict[str, str]]:
            state = path.stat()
            if state.st_size > _LARGEST:
                raise FormatError(f"is larger than {_LARGEST >> 20} MiB.", path)
            title, body, about = read(path.read_bytes())
            if not title.strip() and not body.strip():
                raise FormatError("has no text; is it a scan?", path)
            day = datetime.fromtimestamp(state.st_mtime, UTC).date().isoformat()
            return id_of(name), title, body, {"date": day, **about}

        yield row

    return rows


def _read_mailbox(path: Path, name: str) -> Iterator[_Row]:
    box = mailbox.mbox(path, create=False)

    def row(key: Any) -> tuple[str, str, str, dict[str, str]]:
        raw = box.get_bytes(key)
        sign = str(email.message_from_bytes(raw).get("message-id") or "").encode("utf-8", "replace") or raw
        return id_of(f"{name}#{hashlib.sha256(sign).hexdigest()[:12]}"), *_of_mail(raw)

    try:
        yield from (functools.partial(row, key) for key in box.iterkeys())
    finally:
        box.close()


def _read_table(path: Path, name: str) -> Iterator[_Row]:
    csv.field_size_limit(_LONGEST_CELL)
    text = _decode(path.read_bytes())
    try:
        dialect: Any = csv.Sniffer().sniff(text[:65_536], ",;\t|")
    except csv.Error:
        dialect = csv.excel_tab if path.suffix.lower() == ".tsv" else csv.excel
    dialect.doublequote = True  # the sniffer says no where the beginning has none

    def row(number: int, cells: Mapping[Any, Any]) -> tuple[str, str, str, dict[str, str]]:
        if None in cells:
            raise FormatError("has more cells than the first line.", path, number + 1)
        known = {key.strip().lower(): value or "" for key, value in cells.items()}
        body = next((known[key] for key in _TEXTS if key in known), "\n".join(f"{k}: {v}" for k, v in known.items()))
        given = next((known[key] for key in _IDS if known.get(key)), "") or id_of(f"{name}#{number}")
        title = next((known[key] for key in _TITLES if key in known), "")
        about = _about(known.get("author"), known.get("date"))
        return given, title, body, {**about, **_readers(known.get("readers") or None)}

    for number, cells in enumerate(csv.DictReader(io.StringIO(text, newline=""), dialect=dialect), 1):
        yield functools.partial(row, number, cells)


def _read_lines(path: Path, name: str) -> Iterator[_Row]:
    def row(number: int, line: bytes) -> tuple[str, str, str, dict[str, str]]:
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError("is not a JSON object in UTF-8.", path, number) from error
        if not isinstance(given, dict):
            raise FormatError(f"must be a JSON object, got {type(given).__name__}.", path, number)
        named = _fold_keys(given).get("readers")
        id, title = given.get("id", given.get("_id")), given.get("title") or ""
        body, about = given.get("text", given.get("body")), given.get("about") or {}
        id = str(id) if isinstance(id, int) and not isinstance(id, bool) else id
        if not (isinstance(id, str) and isinstance(title, str) and isinstance(body, str) and isinstance(about, dict)):
            raise FormatError('needs "id" and "text", both text, and "title" only as text.', path, number)
        known = _about(given.get("author"), given.get("date"))
        named = _fold_keys(about).get("readers") if named is None else named
        known |= {key: _shown(value)[:200] for key, value in about.items() if key.strip().lower() != "readers"}
        return id, title, body, {**known, **_readers(named)}

    with path.open("rb") as lines:
        yield from (functools.partial(row, n, line) for n, line in enumerate(lines, 1) if line.strip())


#: Ending of a file → its reader.
READERS: Mapping[str, Callable[[Path, str], Iterator[_Row]]] = {
    **dict.fromkeys((".txt", ".text"), _whole(_of_text)),
    **dict.fromkeys((".md", ".markdown"), _whole(_of_markdown)),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _whole(_of_html)),
    ".pdf": _whole(_of_pdf),
    ".docx": _whole(_of_docx),
    ".eml": _whole(_of_mail),
    ".mbox": _read_mailbox,
    **dict.fromkeys((".csv", ".tsv"), _read_table),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_lines),
}

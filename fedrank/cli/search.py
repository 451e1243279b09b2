"""``fedrank search …``: a search over the documents of several owners, who each serve their own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

from cyclopts import App

from fedrank.cli.listen import Address, Asking, At, Port, Reach, Reached, Who, log_to_stderr
from fedrank.cli.terminal import AsJson, Names, Quiet, Switch, add_plug_ins, print_json
from fedrank.core.errors import ConfigError, MissingDataError
from fedrank.core.words import printable
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.engine.checkpoint import write_atomically

app = App(name="search", help="Search the documents of several owners; be an owner, the broker, a portal.")
owner = App(name="owner", help="Be an owner: serve documents, add and remove them, say who may search them.")
app.command(owner)
add_plug_ins(app, "search")


@app.command
def ask(
    *query: str,
    who: Asking = Who(),
    k: int = 10,
    open: int = 0,
    choose: Switch = False,
    all_owners: Switch = False,
    reach: Reached = Reach(),
    as_json: AsJson = False,
) -> None:
    """Search the documents of all owners of a federation.

    Args:
        query: The words. 'in "heated wings" -wind type:pdf author:smith after:2024-03 before:2025' finds documents
            with this phrase and without a word, of a type, an author and a time.
        who: The federation, and who asks it.
        k: Most documents; for more than 20, owners are asked several questions.
        open: Also print the document at this place, 1 being the best.
        choose: Ask those owners only of whom past answers let expect something. Questions and words of answers are kept
            for 30 days, in past.json beside the asker's other files.
        all_owners: Ask all owners this time.
        reach: How the broker is reached.
    """
    if not query:
        raise ConfigError("say what to search for: fedrank search ask words of a query")
    asked = who.open_federation(reach, choose)
    answer = asked.search(" ".join(query), k, all_owners=all_owners)
    if not 0 <= open <= len(answer.hits):
        raise ConfigError(f"there is no hit {open}; {len(answer.hits)} were found.")
    document = asked.fetch(answer.hits[open - 1]) if open else None
    if as_json:
        found: dict[str, Any] = dataclasses.asdict(dataclasses.replace(answer, search=None))
        del found["search"]
        if document:
            found["document"] = document._asdict()
        print_json(found)
        return
    width = max((len(hit.owner) for hit in answer.hits), default=0)
    for place, hit in enumerate(answer.hits, 1):
        cosine = "" if hit.features is None else f"  {hit.features[0]:5.2f}"
        print(f"{place:3}  {hit.score:6.1f}{cosine}  {hit.owner:{width}}  {printable(hit.title)}")
        if hit.snippet.text:
            print(f"     {printable(hit.snippet.text)}")
    if not answer.hits:
        print(answer.note or "Nothing was found.")
    for typed, near in answer.unknown.items():
        instead = f"; did you mean {printable(near)}?" if near else "."
        print(f"No owner that answered has a document that you may read with {printable(typed)}{instead}")
    for owner, why in answer.missing.items():
        print(f"fedrank: {owner} is missing: {printable(why)}", file=sys.stderr)
    if answer.not_asked:
        print(f"fedrank: not asked (--all-owners does): {', '.join(answer.not_asked)}", file=sys.stderr)
    if answer.own_statistics:
        print(
            f"fedrank: scores of {', '.join(answer.own_statistics)} do not compare with the others' without the "
            "federation's statistics; fedrank search owner status says what they need",
            file=sys.stderr,
        )
    if answer.left_out_cosines:
        print(
            f"fedrank: {', '.join(answer.left_out_cosines)}: cosines that no encoder gives were left out",
            file=sys.stderr,
        )
    if document:
        about = " · ".join(filter(None, map(document.about.get, ("date", "author", "path"))))
        print(f"\n{printable(document.title)}\n{printable(about)}\n\n{printable(document.body, lines=True)}")


@owner.command
def serve(
    folder: Path,
    /,
    *,
    documents: Path | None = None,
    join: str | None = None,
    name: str | None = None,
    url: str | None = None,
    trust_broker: Switch = False,
    federation: Path | None = None,
    at: At = Address(),
    port: Port = 8761,
    reach: Reached = Reach(),
    reveals: str | None = None,
    fetch: bool | None = None,
    encoder: str | None = None,
    engine: str | None = None,
    table: str | None = None,
    columns: str | None = None,
) -> None:
    """Be an owner of documents that answers sealed questions. Ctrl-C stops it; the documents stay in the folder.

    Args:
        folder: Of the owner; made if it is not there.
        documents: Folder or file that the index follows: text, Markdown, HTML, PDF, DOCX, mail, CSV, JSON lines. What
            is added, changed or removed there is so in the index, half a minute later.
        join: Join a federation, at the address that its broker prints. Its words are shown for comparison with the
            other owners, who may then ask here as this one may ask them. It may stay on the command line later: the
            owner then keeps to the federation that was confirmed until the words of another are compared.
        name: The owner's name in the federation; the folder's without it.
        url: Address at which the broker reaches it, where that is another than host and port.
        trust_broker: Join the first federation without comparing words. Then the broker could hand out other keys and
            read all.
        federation: The federation's file, so that the owner takes part in its statistics; the one that it has joined
            without it.
        at: Where it listens.
        reach: How the broker is reached when joining.
        reveals: What stands beside a hit: its title (title), its title or the beginning of its text (beginning), or
            only its score (score). Kept in owner.toml.
        fetch: Whether askers may fetch what they found. Kept in owner.toml.
        encoder: Encoder whose cosines stand beside scores: wordllama, which is there without this, all-minilm-l6-v2, a
            folder, or none. Kept in owner.toml; an index is made anew where it changes.
        engine: Existing index: postgresql://… or https://HOST:9200/INDEX. Kept in owner.toml.
        table: Table of documents in PostgreSQL. Kept in owner.toml.
        columns: Columns or fields of a document there: id, title and text. Kept in owner.toml.
    """
    from fedrank.deploy.search.service import owner_app as build

    log_to_stderr()
    if documents is not None and not documents.exists():  # before others are told that this owner is there
        raise MissingDataError(f"--documents {documents}: there is no such folder or file.")
    home = OwnerFolder(folder)
    with home.lock():
        home.prepare()
        chosen = {"reveals": reveals, "fetch": fetch, "encoder": encoder, "engine": engine}
        chosen |= {"table": table, "columns": columns}
        if given := {name: value for name, value in chosen.items() if value is not None}:
            from fedrank.engine.settings import from_table, table_of

            home.prepare(from_table({**table_of(home.settings()), **given}, type(home.settings())))
        if join is not None:
            from fedrank.deploy.search.joining import address_for
            from fedrank.deploy.search.joining import join as join_federation

            url = url or address_for(join, "http" if at.certificate is None else "https", at.host, port)
            confirm = functools.partial(compare_words, trust=trust_broker)
            join_federation(home, name or home.path.resolve().name, url, join, confirm, **vars(reach))
        if federation is None and home.federation.exists():
            federation = home.federation
        built = build(home, federation, documents)

        def ready(url: str) -> None:
            print(f"owner   {url}", f"key     {home.public_key()}", f"gives   {home.settings().gives()}", sep="\n")
            print(f"allow   fedrank search owner allow {home.path} NAME", flush=True)
            at.warn_without_tls("the broker's and the operator's tokens")

        at.serve(built, port, ready, home, "owner")


def compare_words(file: Any, words: str, again: bool, *, trust: bool) -> bool:
    """Show a federation's owners and words, and ask whether the others read the same.

    ``again``: another federation was confirmed before, so that neither ``trust`` nor a missing terminal decides.
    """
    print(f"federation  {printable(file.name)}: {', '.join(owner.name for owner in file.owners)}")
    print(f"words       {words}", flush=True)
    if trust and not again:
        return True
    if again and not sys.stdin.isatty():
        return False
    if not sys.stdin.isatty():
        raise ConfigError("the words must be compared by a person: start it in a terminal once, or --trust-broker.")
    return input("Call the other owners. Do all of them see these words? yes/no: ").strip().lower() == "yes"


@app.command
def broker(
    folder: Path,
    /,
    *,
    owners: int | None = None,
    name: str | None = None,
    languages: Names = ("english",),
    epsilon: float = 1.0,
    releases: int = 1,
    no_statistics: Switch = False,
    at: At = Address(),
    port: Port = 8760,
    patience: float = 2.0,
    reach: Reached = Reach(),
) -> None:
    """Start a federation, and carry sealed questions to its owners and their answers back. Ctrl-C stops it.

    Args:
        folder: Of the broker; made if it is not there. Of a federation that was written by hand it has
            federation.toml, with the owners' addresses.
        owners: Number of owners that may join; once they have, their statistics are made.
        name: What the federation is called; the folder's name without it.
        languages: Languages of the documents, with commas between.
        epsilon: ε of a document in the owners' statistics, over all releases.
        releases: Releases of the statistics, each with an equal part of ε. Where owners come later, those of before and
            they need another one together.
        no_statistics: Have the owners make no statistics; fedrank search statistics does.
        at: Where it listens.
        patience: Seconds that an owner may take to answer; then it is missing, and the others' hits are passed on.
        reach: How the owners are reached.
    """
    from fedrank.deploy.search.broker import BrokerApp
    from fedrank.deploy.search.federation import read_federation
    from fedrank.deploy.search.joining import BrokerFolder

    log_to_stderr()
    home = BrokerFolder(folder)
    with home.lock():
        if owners is not None:
            terms = {"name": name or home.path.resolve().name, "analyser": {"languages": [*languages]}, "ranking": {}}
            home.begin(owners, {**terms, "statistics": {"epsilon": epsilon, "releases": releases}})
        state = home.state()
        if state is None and not home.federation.exists():
            raise ConfigError(f"{folder}: there is no federation here; start one with --owners NUMBER.")
        file = read_federation(home.federation) if home.federation.exists() else None
        options = {"patience": patience, "statistics": not no_statistics, **vars(reach)}
        carrier = BrokerApp(file, None if state is None else home, **options)

        def ready(url: str) -> None:
            print(f"broker  {url}", flush=True)
            if state is not None:
                print(f"join    fedrank search owner serve FOLDER --join {url}#{home.token('join')}", flush=True)
            at.warn_without_tls("tokens of owners that join")

        at.serve(carrier, port, ready)


@app.command
def portal(
    *,
    who: Asking = Who(),
    at: At = Address(),
    port: Port = 8770,
    names: Names = (),
    company_key: Path | None = None,
    user_header: str = "Remote-User",
    groups_header: str = "Remote-Groups",
    choose: Switch = False,
    reach: Reached = Reach(),
) -> None:
    """Serve a search page and a REST interface for your own people, who ask in the asker's name. Ctrl-C stops it.

    Args:
        who: The federation, and who asks it.
        at: Where it listens.
        names: Host names by which browsers call it, such as that of the proxy in front of it; beside localhost, the
            host above and numeric addresses, which always are. Requests under other names are refused.
        company_key: The company's key (fedrank search person), so that each person finds what they may read. A proxy in
            front says who asks, in every request, and is the only way to the portal.
        user_header: Header in which the proxy names the person.
        groups_header: Header in which it names groups of the person, with commas between.
        choose: As of fedrank search ask, for all who ask here without a company's key.
        reach: How the broker is reached.
    """
    from fedrank.deploy.search.portal import PortalApp

    log_to_stderr()
    private = b"" if company_key is None else read_key(company_key)
    headers = (user_header, groups_header)
    page = PortalApp(who.open_federation(reach, choose), [at.host, *names], private, headers)

    def ready(url: str) -> None:
        print(f"portal  {url}", flush=True)
        at.warn_without_tls("queries and documents")

    at.serve(page, port, ready)


@app.command
def person(key: Path, name: str | None = None, /, *, company: str = "", groups: Names = (), days: int = 90) -> None:
    """Say, as a company, who one of its people is: the table [person] of asker.toml.

    Without a name the company's public key is printed, for fedrank search owner allow FOLDER COMPANY --signs KEY.

    Args:
        key: File of the company's private key; made if it is not there.
        name: The person.
        company: The company's name as an asker.
        groups: Groups of the company that the person is in.
        days: Days for which it holds.
    """
    import time

    import tomlkit

    from fedrank.texts.served.rights import new_key, public_key, sign_person

    if not key.exists():
        write_atomically(key, new_key(), 0o600)
    private = read_key(key)
    if name is None:
        print(public_key(private))
        return
    if not company or days < 1:
        raise ConfigError(
            f"--company must name the company as owners do, and --days be 1 at least; got {company!r}, {days}."
        )
    said = sign_person(private, company, name, groups, int(time.time() // 86400) + days)
    print("[person]", *(f"{key} = {tomlkit.item(value).as_string()}" for key, value in said.items()), sep="\n")


def read_key(file: Path) -> bytes:
    """The private key of a company."""
    try:
        key = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read ({error.strerror}). Make it: fedrank search person {file}"
        ) from error
    if len(key) != 32:
        raise ConfigError(f"{file}: is no key of a company, which has 32 bytes; got {len(key)}.")
    return key


@owner.command
def allow(
    folder: Path,
    name: str,
    /,
    *,
    groups: Names = (),
    signs: str = "",
    new_token: Switch = False,
    out: Path | None = None,
) -> None:
    """Let an asker ask this owner, or change groups and key of one that may; it keeps its token.

    Args:
        folder: Of the owner.
        name: The asker's name; owner/NAME is an owner that has joined.
        groups: Groups that the asker is in, which documents may name as their readers; those of before no longer count.
        signs: Public key of a company, as fedrank search person prints it, which then says who of its people asks;
            without it the asker signs for none.
        new_token: Give it a new token in place of the one that it has.
        out: File for a new token, readable by you alone; without it the token is printed, this once.
    """
    from fedrank.texts.served.rights import key_of_text

    token = OwnerFolder(folder).allow(name, groups, key_of_text(signs) if signs else b"", new_token)
    if not token:
        print(f"{name} keeps its token.", file=sys.stderr)
    elif out is None:
        print(token)
    else:
        write_atomically(out, token.encode() + b"\n", 0o600)


@owner.command
def log(folder: Path, /, *, name: str = "", days: int = 0, as_json: AsJson = False) -> None:
    """Print who asked an owner what, and which documents they were given; kept for log_days of owner.toml.

    Args:
        folder: Of the owner.
        name: Only of the asker of this name and its people, or of this person (COMPANY/NAME).
        days: Only of the last days; 0: of all that is kept.
    """
    import time
    from datetime import UTC, datetime

    with contextlib.closing(OwnerFolder(folder).askers()) as askers:
        for row in askers.list_questions(name, int(time.time()) - days * 86400 if days else 0):
            if as_json:
                print_json(row)
                continue
            when = datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="seconds")
            given = ", ".join(map(printable, row["given"]))
            print(f"{when}  {row['name']}  {row['kind']}  {printable(row['query'])}  →  {given}")


@owner.command
def forbid(folder: Path, name: str, /) -> None:
    """Take an asker's token back.

    Args:
        folder: Of the owner.
        name: The asker's name; owner/NAME is an owner that has joined, which joining again does not admit.
    """
    with contextlib.closing(OwnerFolder(folder).askers()) as askers:
        known = askers.forbid(name)
    if not known:
        raise ConfigError(f"{folder}: there is no asker named {name!r}.")


@owner.command
def add(folder: Path, documents: Path, /) -> None:
    """Add documents to an owner, also while it is served; one with a known id replaces the old one.

    Args:
        folder: Of the owner.
        documents: A file, or a folder: text, Markdown, HTML, PDF, DOCX, mail, CSV, JSON lines.
    """
    from fedrank.deploy.search.service import Operator

    problems: list[str] = []
    count, total = Operator(folder).add(documents, problems)
    print(f"{count} documents were added; there are {total}.")
    _print_problems(problems)


def _print_problems(problems: list[str]) -> None:
    """Name what was left out, the first twenty lines of it."""
    if problems:
        print(
            f"{len(problems)} left out:", *(f"  {printable(line)}" for line in problems[:20]), sep="\n", file=sys.stderr
        )


@owner.command
def remove(folder: Path, /, *ids: str) -> None:
    """Take documents away from an owner, also while it is served.

    Args:
        folder: Of the owner.
        ids: Ids of the documents.
    """
    from fedrank.deploy.search.service import Operator

    count, total = Operator(folder).remove(ids)
    print(f"{count} documents were taken away; there are {total}.")


@owner.command
def status(folder: Path, /, *, as_json: AsJson = False) -> None:
    """Numbers of an owner: documents, askers, what was given of its documents' statistics.

    Args:
        folder: Of the owner.
    """
    from fedrank.deploy.search.service import Operator

    found = Operator(folder).status()
    if as_json:
        print_json(found)
        return
    print(f"documents   {found['documents']}", f"statistics  {found['statistics']}", sep="\n")
    if found["note"]:
        print(f"note        {found['note']}")
    if found["followed"]:
        print(f"followed    {found['followed']}")
    _print_problems(found["left_out"])
    for release in found["releases"]:
        print(f"release     ε = {release['epsilon']:g} a document, of {release['documents']} documents")
    for asker in found["askers"]:
        print(f"asker       {asker['name']}: {asker['searched']} searches, {asker['fetched']} documents today")


@app.command
def statistics(
    folder: Path,
    /,
    *,
    release: int = 0,
    reach: Reached = Reach(),
    quiet: Quiet = False,
) -> None:
    """As the broker, have all owners make the federation's statistics: noisy sums that hide each owner's part.

    The broker makes the first release itself once all owners have joined.

    Args:
        folder: Of the broker: federation.toml with the owners' addresses, and broker.toml with the broker's token at
            each (name = "token").
        release: Number of the release, from 0; the same again if one has failed.
        reach: How the owners are reached.
    """
    from fedrank.deploy.search.federation import read_federation
    from fedrank.deploy.search.joining import BrokerFolder
    from fedrank.deploy.search.statistics import make_statistics
    from fedrank.engine.settings import read_toml

    home = BrokerFolder(folder)
    file, given = read_federation(home.federation), read_toml(home.tokens)
    wrong = [name for name, token in given.items() if not isinstance(token, str)]
    if wrong:
        raise ConfigError(f"{home.tokens}: {wrong[0]} must be a text, the broker's token at that owner.")
    say = (lambda _: None) if quiet else (lambda step: print(f"statistics: {step}", file=sys.stderr))
    tokens = {name: str(token) for name, token in given.items()}
    sent, table = make_statistics(file, tokens, release, progress=say, timeout=120.0, **vars(reach))
    if not quiet:
        terms = file.statistics()
        print(
            f"{len(file.owners)} owners, {sent:,} bytes from each, "
            f"ε = {terms.epsilon / terms.releases:g} a document at δ = {terms.delta:g}"
        )
    if note := table.note():
        print(f"fedrank: warning: {note}", file=sys.stderr)

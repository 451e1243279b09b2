"""PostgreSQL's full text search over a table that a company has already.

Nothing is written. Rows that hold one of the query's words are found by ``tsvector @@ tsquery`` and ranked by
``ts_rank`` of each word, weighted as the federation weighs it; the best are scored again from their text. Indexes make
it fast::

    CREATE INDEX ON articles USING gin (to_tsvector('english', body));
    CREATE INDEX ON articles USING gin (to_tsvector('english', title));

The words of a query come stemmed (Snowball), as those of the configuration of the first language are, and are compared
as they come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.lazy import OptionalModule
from fedrank.texts.served.analyser import Analyser
from fedrank.texts.served.documents import Document
from fedrank.texts.served.engines import Candidate
from fedrank.texts.served.engines.foreign import Columns, ForeignEngine, Place, document_of_row
from fedrank.texts.served.rights import OPEN

psycopg = OptionalModule("psycopg", "postgres", "An owner's documents in PostgreSQL")

#: Longest time of one statement, in milliseconds; reading all documents for the statistics has no limit.
_PATIENCE = 10_000


class PostgresEngine(ForeignEngine):
    """Documents in a table or view.

    Args:
        url: ``postgresql://…``; a password may stand in ``PGPASSWORD`` or ``~/.pgpass`` instead.
        table: Name of the table, with its schema or without.
        columns: Names of its columns.
        analyser: Cuts documents into words; its first language is the text search configuration.

    Raises:
        RunError: The server cannot be reached, or lacks the table or a column.
        MissingExtraError: The extra ``postgres`` is not installed.
    """

    def __init__(self, url: str, table: str, columns: Columns, analyser: Analyser | None = None):
        self._url, self._columns = url, columns
        super().__init__(f"{urlsplit(url).hostname or 'PostgreSQL'}, table {table}", analyser)
        self._connection: Any = None
        sql = psycopg.sql
        literal = sql.Literal(self._analyser.languages[0])
        self._names = {
            "table": sql.Identifier(*table.split(".")),
            "id": sql.Identifier(columns.id),
            "title": sql.Identifier(columns.title) if columns.title else sql.SQL("NULL::text"),
            "body": sql.Identifier(columns.body),
            "body_words": sql.SQL("to_tsvector({}, {})").format(literal, sql.Identifier(columns.body)),
            "title_words": sql.SQL("to_tsvector({}, {})").format(literal, sql.Identifier(columns.title))
            if columns.title
            else sql.SQL("NULL::tsvector"),
        }
        self._ask("SELECT {id}, {title}, {body}, {body_words}, {title_words} FROM {table} LIMIT 0")

    @classmethod
    def at(cls, place: Place) -> PostgresEngine:
        """The engine of a place; errors as of the class."""
        return cls(place.url, place.table, place.columns, place.analyser)

    def get(self, id: str) -> Document | None:
        """The document of this id; None if there is none."""
        rows = self._ask("SELECT {id}, {title}, {body} FROM {table} WHERE {id}::text = %s LIMIT 1", (id,))
        return document_of_row(*rows[0]) if rows else None

    def candidates(
        self,
        weights: Mapping[str, float],
        most: int,
        readers: Collection[str] = (OPEN,),
        needed: Collection[str] = (),
    ) -> list[Candidate]:
        """The best rows by ``ts_rank`` of each word in body and title, each word at its weight."""
        if not weights or OPEN not in readers:
            return []
        sql, words = psycopg.sql, [_lexeme(word) for word in weights]
        # ts_rank of one word grows with its number and falls with the logarithm of the length (normalisation 1).
        one = "coalesce(ts_rank({body_words}, %s::tsquery, 1), 0) + coalesce(ts_rank({title_words}, %s::tsquery, 1), 0)"
        ranks = sql.SQL(" + ").join(sql.SQL(f"%s::float8 * ({one})").format(**self._names) for _ in words)
        statement = sql.SQL(
            "SELECT {id}, {title}, {body} FROM {table} "
            "WHERE {body_words} @@ %s::tsquery OR {title_words} @@ %s::tsquery ORDER BY {ranks} DESC, {id} LIMIT %s"
        ).format(**self._names, ranks=ranks)
        anywhere = " | ".join(words)
        given = [part for word, weight in zip(words, weights.values(), strict=True) for part in (weight, word, word)]
        rows = self._ask(statement, (anywhere, anywhere, *given, most))
        return self._candidates([document for row in rows if (document := document_of_row(*row)) is not None])

    @override
    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()

    @override
    def _documents(self) -> Iterator[Document]:
        """All documents, row after row, in a separate connection."""
        with self._name_errors(), self._connect(patience=0) as connection, connection.transaction():
            cursor = connection.cursor(name="fedrank_words")
            cursor.execute(psycopg.sql.SQL("SELECT {id}, {title}, {body} FROM {table}").format(**self._names))
            for row in cursor:
                if (document := document_of_row(*row)) is not None:
                    yield document

    @override
    def _count_words(self, words: Sequence[str]) -> list[tuple[int, int]]:
        one = (
            "(SELECT count(*) FROM {table} WHERE {body_words} @@ %s::tsquery), "
            "(SELECT count(*) FROM {table} WHERE {title_words} @@ %s::tsquery)"
        )
        statement = psycopg.sql.SQL(f"SELECT {', '.join([one] * len(words))}").format(**self._names)
        (row,) = self._ask(statement, [lexeme for word in words for lexeme in (_lexeme(word),) * 2])
        return [(int(row[2 * place]), int(row[2 * place + 1])) for place in range(len(words))]

    @override
    def _how_many(self) -> int:
        return int(self._ask("SELECT count(*) FROM {table}")[0][0])

    @override
    def _some(self, most: int) -> list[Document]:
        rows = self._ask("SELECT {id}, {title}, {body} FROM {table} LIMIT %s", (most,))
        return [document for row in rows if (document := document_of_row(*row)) is not None]

    def _connect(self, patience: int = _PATIENCE) -> Any:
        options = f"-c default_transaction_read_only=on -c statement_timeout={patience}"
        return psycopg.connect(self._url, autocommit=True, options=options, connect_timeout=10)

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Turn errors of the server into one that says where."""
        try:
            yield
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            raise RunError(f"{self._where}: PostgreSQL cannot be asked ({said:.300}).") from error

    def _ask(self, statement: Any, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement; a connection that has gone is made anew, once."""
        if isinstance(statement, str):
            statement = psycopg.sql.SQL(statement).format(**self._names)  # type: ignore[arg-type] - written here
        with self._name_errors():
            for last in (False, True):
                try:
                    if self._connection is None or self._connection.closed:
                        self._connection = self._connect()
                    return self._connection.execute(statement, values).fetchall()
                except psycopg.OperationalError:
                    if last or not self._connection or not self._connection.closed:
                        raise
        raise AssertionError("unreachable")


def _lexeme(word: str) -> str:
    """A word as a query of one lexeme, which is compared as it is."""
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"

"""The part of OpenSearch's and Elasticsearch's REST interface that an owner uses, as their references document it.

It holds documents, refuses requests of any other form with 400, and counts what is asked.
"""

import contextlib
import functools
import json
import math
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from fedrank.texts.data.corpus import tokenise

_SHARDS = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}


class Refused(Exception):
    """A request of a form that is not documented."""


class Index:
    """Documents with the fields ``title`` and ``body``; the analyser stems as English ones do."""

    def __init__(self, documents, authorization=""):
        self.documents, self.authorization = documents, authorization
        self.scrolls, self.asked = {}, []
        cut = tokenise([text or "" for _, *texts in documents for text in texts])
        self.words = {name: (cut[2 * n], cut[2 * n + 1]) for n, (name, *_) in enumerate(documents)}
        self.held = [Counter(word for both in self.words.values() for word in set(both[f])) for f in (0, 1)]

    def answer(self, method, path, query, body):
        self.asked.append((method, path))
        if (method, path) == ("GET", "/articles/_count"):
            return {"count": len(self.documents), "_shards": _SHARDS}
        if method == "GET" and (found := re.fullmatch(r"/articles/_doc/(.+)", path)):
            for name, title, text in self.documents:
                if name == unquote(found[1]):
                    return {"_index": "articles", "_id": name, "_version": 1, "found": True,
                            "_source": {"title": title, "body": text}}  # fmt: skip
            raise KeyError(found[1])
        if (method, path) == ("POST", "/articles/_search"):
            return self.search(body, query)
        if path == "/_search/scroll" and method == "POST" and set(body) == {"scroll", "scroll_id"}:
            return self.page(body["scroll_id"])
        if path == "/_search/scroll" and method == "DELETE" and set(body) == {"scroll_id"}:
            self.scrolls.pop(body["scroll_id"], None)
            return {"succeeded": True, "num_freed": 1}
        raise Refused(f"{method} {path}")

    def search(self, body, query):
        if set(body) - {"size", "_source", "query", "aggs", "track_total_hits", "sort"} or body["size"] > 10_000:
            raise Refused(sorted(body))
        if "aggs" in body:
            found = {}
            for name, one in body["aggs"].items():
                ((kind, clause),) = one.items()
                if kind != "filter":
                    raise Refused(kind)
                found[name] = {"doc_count": sum(self.score(clause, row) > 0 for row in self.documents)}
            return {"took": 1, "timed_out": False, "_shards": _SHARDS, "hits": {"hits": []}, "aggregations": found}
        scored = [(self.score(body.get("query", {"match_all": {}}), row), row) for row in self.documents]
        rows = [self.hit(row, score, body["_source"]) for score, row in scored if score > 0]
        if body.get("sort") != ["_doc"]:
            rows.sort(key=lambda row: -row["_score"])
        if query != "":
            if query != "scroll=2m":
                raise Refused(query)
            self.scrolls[name] = (rows, body["size"]) if (name := f"scroll{len(self.scrolls)}") else None
            return self.page(name)
        return {"took": 1, "timed_out": False, "_shards": _SHARDS, "hits": {"hits": rows[: body["size"]]}}

    def page(self, name):
        rows, size = self.scrolls[name]
        self.scrolls[name] = (rows[size:], size)
        return {"_scroll_id": name, "took": 1, "timed_out": False, "_shards": _SHARDS, "hits": {"hits": rows[:size]}}

    def hit(self, row, score, wanted):
        source = {name: value for name, value in zip(("title", "body"), row[1:], strict=True) if name in wanted}
        return {"_index": "articles", "_id": row[0], "_score": score, "_source": source}

    def score(self, clause, row):
        """BM25 of Lucene with b = 0, of ``bool`` and ``dis_max`` over ``match``."""
        ((kind, inner),) = clause.items()
        if kind == "match_all" and inner == {}:
            return 1.0
        if kind == "bool" and set(inner) == {"should", "minimum_should_match"} and inner["minimum_should_match"] == 1:
            return sum(self.score(one, row) for one in inner["should"])
        if kind == "dis_max" and set(inner) <= {"queries", "boost"}:
            return inner.get("boost", 1.0) * max(self.score(one, row) for one in inner["queries"])
        if kind == "match":
            ((field, wanted),) = inner.items()
            if set(wanted) - {"query", "analyzer"}:
                raise Refused(wanted)
            number = ("title", "body").index(field.split(".")[0])
            own, total = self.words[row[0]][number], 0.0
            for word in _analysed(wanted["query"], wanted.get("analyzer", "english")):
                held, count = self.held[number][word], own.count(word)
                idf = math.log1p((len(self.documents) - held + 0.5) / (held + 0.5))
                total += idf * count / (count + 1.2)
            return total
        raise Refused(kind)


@functools.cache
def _analysed(text, analyzer):
    return text.split() if analyzer == "whitespace" else tokenise([text])[0]


@contextlib.contextmanager
def served(index):
    """Serve an index; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def answered(self):
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            status, found = 200, {}
            try:
                if index.authorization and self.headers.get("Authorization") != index.authorization:
                    status, found = 401, {"error": {"type": "security_exception"}, "status": 401}
                else:
                    found = index.answer(self.command, path, query, json.loads(raw) if raw else None)
            except KeyError as error:
                status, found = 404, {"_index": "articles", "_id": str(error), "found": False}
            except Refused as error:
                status, found = 400, {"error": {"type": "parsing_exception", "reason": str(error)}, "status": 400}
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = answered

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/articles"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

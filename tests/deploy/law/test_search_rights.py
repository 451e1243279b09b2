"""Who may read a document of a federated search, over real HTTP: others learn nothing of it."""

import base64
import json
import time
import urllib.request
from urllib.error import HTTPError

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from search_worlds import owner, search_world

from fedrank.core.errors import ConfigError, FormatError, RunError, WireError
from fedrank.deploy.search.federation import Federation
from fedrank.deploy.search.portal import PortalApp
from fedrank.deploy.search.service import Operator
from fedrank.deploy.search.watched import WatchedFolder
from fedrank.texts.served.documents import Document
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.files import read_documents
from fedrank.texts.served.owner import Owner, OwnerSettings
from fedrank.texts.served.query import Conditions
from fedrank.texts.served.rights import (
    CLOSED,
    OPEN,
    identify,
    key_of_text,
    new_key,
    public_key,
    readers_text,
    sign_person,
)
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

DAY = int(time.time() // 86400)
ROWS = [
    {"id": "open", "title": "Wings", "text": "wings for everybody"},
    {"id": "anna", "title": "Wings of Anna", "text": "wings and a quaternion", "readers": ["anna"]},
    {"id": "group", "title": "Wings of surgeons", "text": "wings in surgery", "readers": "surgeons, heads"},
    {"id": "acme", "title": "Wings of Acme", "text": "wings of the works council", "readers": ["acme:council"]},
    {"id": "bert", "title": "Wings of Bert", "text": "wings of bert alone", "readers": ["acme/bert"]},
    {"id": "none", "title": "Wings of no one", "text": "wings of no one", "readers": []},
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rights")
    settings = OwnerSettings(questions_a_person=40)
    with search_world(folder, {"north": []}, settings) as (_, homes, file):
        documents = folder / "rights.jsonl"
        documents.write_text("\n".join(map(json.dumps, ROWS)))
        assert Operator(homes["north"].path).add(documents) == (6, 6)
        askers, key = homes["north"].askers(), new_key()
        tokens = {
            "anna": askers.allow("anna"),
            "carl": askers.allow("carl", ["surgeons"]),
            "dora": askers.allow("dora"),
            "acme": askers.allow("acme", key=key_of_text(public_key(key))),
        }
        askers.close()
        yield {name: Federation(file, (name, {"north": token})) for name, token in tokens.items()}, key, homes["north"]


def person(key, name, groups=(), until=DAY, company="acme"):
    return sign_person(key, company, name, groups, until)


def found(asked, query="wings", **more):
    return {hit.title.removeprefix("Wings of ") for hit in asked.search(query, 20, **more).hits}


def test_each_asker_finds_what_they_may_read(world):
    asked, key, _ = world
    assert found(asked["dora"]) == {"Wings"}
    assert found(asked["anna"]) == {"Wings", "Anna"}
    assert found(asked["carl"]) == {"Wings", "surgeons"}
    assert found(asked["acme"]) == {"Wings"}
    assert found(asked["acme"], person=person(key, "eve", ["council"])) == {"Wings", "Acme"}
    assert found(asked["acme"], person=person(key, "bert", ["surgeons"])) == {
        "Wings",
        "Bert",
    }  # groups are the company's


def test_a_word_of_documents_that_one_may_not_read_changes_nothing(world):
    """Scores, numbers, and what is missing are those of an owner without these documents."""
    asked, _, _ = world
    for query in ("quaternion", "surgery", "wings quaternion", '"works council"', "council type:jsonl"):
        assert found(asked["dora"], query) <= {"Wings"}
    assert not asked["dora"].search("quaternion").missing
    before = [(hit.title, hit.score, hit.features, hit.snippet) for hit in asked["dora"].search("wings everybody").hits]
    with_rare = [
        (hit.title, hit.score, hit.features, hit.snippet)
        for hit in asked["dora"].search("wings everybody quaternion").hits
    ]
    assert [row[0] for row in before] == [row[0] for row in with_rare] == ["Wings"]


def test_the_nearest_word_is_one_of_documents_that_one_may_read(world):
    asked, key, _ = world
    for name, who in (("dora", None), ("anna", None), ("acme", person(key, "eve", ["council"]))):
        answer = asked[name].search("quatternion evrybody concil", 20, person=who)
        assert answer.unknown == {
            "quatternion": "quaternion" if name == "anna" else "",
            "evrybody": "everybody",
            "concil": "council" if name == "acme" else "",
        }
    assert asked["anna"].search("quaternion").unknown == {}
    assert asked["dora"].search("quaternion").unknown == {"quaternion": ""}  # as if it were nowhere


def test_a_beginning_finds_words_of_documents_that_one_may_read(world):
    asked, key, _ = world
    assert found(asked["anna"], "quat*") == {"Anna"} and found(asked["dora"], "quat*") == set()
    assert found(asked["carl"], "surge* every*") == {"Wings", "surgeons"}
    assert found(asked["dora"], "qu*") == set()  # two letters are no beginning
    (hit,) = asked["anna"].search("quat*").hits
    assert [hit.snippet.text[start:end] for start, end in hit.snippet.marks] == ["quaternion"]
    assert found(asked["acme"], "counc*", person=person(key, "eve", ["council"])) == {"Acme"}


def test_an_owner_that_gives_no_texts_out_takes_no_beginnings(tmp_path):
    """Who tried them letter by letter would read the words of its documents."""
    rows = [{"id": "one", "title": "", "text": "a quaternion turns"}]
    with search_world(tmp_path, {"north": []}, OwnerSettings(fetch=False, reveals="score")) as (_, homes, file):
        documents = tmp_path / "one.jsonl"
        documents.write_text("\n".join(map(json.dumps, rows)))
        Operator(homes["north"].path).add(documents)
        askers = homes["north"].askers()
        asked = Federation(file, ("anna", {"north": askers.allow("anna")}))
        askers.close()
        assert len(asked.search("quaternion").hits) == 1 and asked.search("quatternion").unknown == {}
        with pytest.raises(RunError, match="no beginnings"):
            asked.search("quat*")


def test_words_far_down_the_index_are_found(tmp_path):
    """Many passages hold a nearer or a more common word."""
    engine = TantivyEngine(tmp_path / "index")
    many = [Document(f"many{n}", "", "the platform and heat") for n in range(150)]
    engine.add([*many, Document("rare", "", "a plarform with heatsinks", {"readers": readers_text(["anna"])})])
    owner = Owner(engine, X25519PrivateKey.generate(), Tickets(b"k" * 32), None, OwnerSettings())
    assert owner._name_nearest(["plarform"], (OPEN, "anna")) == {}
    assert owner._name_nearest(["plarform"], (OPEN,)) == {"plarform": "platform"}
    assert owner._extend(["heat*", "flow"], (OPEN, "anna"))[0] == "flow"
    assert {*owner._extend(["heat*"], (OPEN, "anna"))} == {"heat", "heatsink"}
    assert owner._extend(["heat*"], (OPEN,)) == ["heat"] and owner._extend(["heat*"], ()) == []
    engine.close()


def test_scores_are_those_of_an_owner_without_the_documents(tmp_path):
    rows = [row for row in ROWS if row["id"] == "open"] + [
        {"id": f"more{n}", "title": "", "text": f"wings and flow {n} everybody " * (1 + n)} for n in range(5)
    ]
    scores = []
    for name, every in (("with", [*rows, *ROWS[1:]]), ("without", rows)):
        documents = tmp_path / f"{name}.jsonl"
        documents.write_text("\n".join(map(json.dumps, every)))
        with search_world(tmp_path / name, {"north": []}) as (asked, homes, _):
            Operator(homes["north"].path).add(documents)
            asked.asker = "anna"
            engine_rows = {}
            for query in ("wings", "everybody", "quaternion surgery wings", "flow"):
                hits = asked.search(query, 20).hits
                engine_rows[query] = [(h.title, h.score) for h in hits if h.title != "Wings of Anna"]
            scores.append(engine_rows)
    assert scores[0] == scores[1]


def test_tickets_are_for_whom_they_were_made_and_end_with_the_right(world):
    asked, key, _ = world
    (hit,) = [one for one in asked["anna"].search("quaternion").hits]
    assert asked["anna"].fetch(hit).body == "wings and a quaternion"
    assert "readers" not in asked["anna"].fetch(hit).about
    with pytest.raises(RunError, match="no ticket"):
        asked["dora"].fetch(hit)
    eve, bert = person(key, "eve", ["council"]), person(key, "bert")
    (hit,) = [one for one in asked["acme"].search("council", person=eve).hits]
    assert asked["acme"].fetch(hit, eve).title == "Wings of Acme"
    for who in (bert, None):
        with pytest.raises(RunError, match="no ticket"):
            asked["acme"].fetch(hit, who)
    with pytest.raises(RunError, match="taken the document away"):  # she is in the group no more
        asked["acme"].fetch(hit, person(key, "eve"))


def test_what_a_company_did_not_sign_is_refused(world):
    asked, key, _ = world
    other, good = new_key(), person(key, "eve", ["council"])
    said = json.loads(good["said"])
    wrong = [
        person(other, "eve", ["council"]),
        person(key, "eve", ["council"], DAY - 1),
        person(key, "anna", company="anna"),
        good | {"said": json.dumps(said | {"groups": ["council", "heads"]})},
        good | {"signature": ""},
        {"said": good["said"]},
        {"said": 3, "signature": 4},
        {"said": "[" * 5000, "signature": good["signature"]},
    ]
    for one in wrong:
        with pytest.raises(RunError):
            asked["acme"].search("wings", person=one)
    with pytest.raises(RunError, match="has not its key"):
        asked["dora"].search("wings", person=good)


def test_a_signed_word_that_is_no_person_is_refused():
    key = new_key()
    private = Ed25519PrivateKey.from_private_bytes(key)
    public = key_of_text(public_key(key))
    for changed in (
        {"name": "a/b"},
        {"groups": "heads"},
        {"groups": ["*"]},
        {"groups": ["x"] * 65},
        {"until": "1"},
        {"asker": "x"},
    ):
        said = json.dumps({"asker": "acme", "name": "eve", "groups": [], "until": DAY} | changed)
        signature = base64.b64encode(private.sign(b"fedrank person 1\n" + said.encode())).decode()
        with pytest.raises(WireError):
            identify("acme", (), public, {"said": said, "signature": signature}, DAY)
    for name, groups in (("", ()), ("a b", ()), ("*", ()), ("eve", ("x/y",)), ("eve", [f"g{n}" for n in range(65)])):
        with pytest.raises(ConfigError):
            sign_person(key, "acme", name, groups, DAY)


def test_documents_that_name_no_readers_are_for_those_of_the_setting():
    assert OPEN in identify("anna", (), b"", None, DAY).readers
    assert OPEN in identify("anna", ("staff",), b"", None, DAY, ["staff"]).readers
    assert OPEN not in identify("anna", (), b"", None, DAY, ["staff"]).readers


def test_budgets_are_of_each_person_within_the_companys(tmp_path):
    settings = OwnerSettings(questions_a_day=5, questions_a_person=3)
    with owner(tmp_path / "north", settings=settings) as (home, _):
        askers = home.askers()
        askers.allow("acme")
        said = [askers.count("acme", "search", bytes([n]), DAY, "acme/eve") for n in range(5)]
        assert said == ["", "", "", "too-many", "too-many"]
        said = [askers.count("acme", "search", bytes([n]), DAY, "acme/bert") for n in range(10, 14)]
        assert said == ["", "", "too-many", "too-many"]  # five of the company
        assert askers.rows() == [("acme", 5, 0)]
        askers.close()


def test_the_owner_knows_who_was_given_what_for_as_long_as_it_says(tmp_path, monkeypatch):
    with search_world(tmp_path, {"north": [("a", "Wings", "heated wings")]}, OwnerSettings(log_days=2)) as (
        asked,
        homes,
        _,
    ):
        asked.fetch(asked.search("wings").hits[0])
        askers = homes["north"].askers()
        rows = [(row["name"], row["kind"], row["query"], row["given"]) for row in askers.list_questions()]
        assert [(name, kind, given) for name, kind, _, given in rows] == [
            ("anna", "search", ["a"]),
            ("anna", "fetch", ["a"]),
        ]
        assert json.loads(rows[0][2]) == {"words": ["wing"]}
        assert not list(askers.list_questions("ann")) and len(list(askers.list_questions("anna"))) == 2
        later = time.time() + 2 * 86400
        monkeypatch.setattr("fedrank.deploy.search.folder.time.time", lambda: later)
        askers.count("anna", "search", b"x", int(later // 86400), "")
        assert not list(askers.list_questions())
        askers.close()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("anna, bert", "anna bert"),
        (["acme:heads", "anna", "anna"], "acme:heads anna"),
        ([], CLOSED),
        ("", CLOSED),
        ("anna *", ""),
    ],
)
def test_readers_are_names(given, text):
    assert readers_text(given) == text


@pytest.mark.parametrize("given", [3, {"a": 1}, [["a"]], "a/b/c", ["a b"], "é", [f"name{n}" for n in range(1000)]])
def test_readers_that_cannot_be_names_are_refused(given):
    with pytest.raises(FormatError):
        readers_text(given)


def test_files_name_their_readers_or_their_folder_does(tmp_path):
    root = tmp_path / "texts"
    (root / "board" / "minutes").mkdir(parents=True)
    (root / "board" / "READERS").write_text("board\nheads\n")
    (root / "a.md").write_text("---\ntitle: A\nreaders: [anna, bert]\n---\ntext a")
    (root / "b.txt").write_text("text b")
    (root / "t.csv").write_text("id,title,text,readers\nrow1,One,text of one,anna\nrow2,Two,text of two,\n")
    (root / "board" / "minutes" / "c.txt").write_text("text c")
    (root / "board" / "d.md").write_text("---\ntitle: D\nreaders: '*'\n---\ntext d")
    (root / "mac.md").write_bytes(b"---\rreaders: hr\r---\rtext m")
    (root / "wrong.md").write_text("---\ntitle: W\nreaders: [3]\n---\ntext w")
    problems = []
    kept = {one.id: one.about.get("readers", "") for one in read_documents(root, problems)}
    assert kept == {
        "a.md": "anna bert",
        "b.txt": "",
        "row1": "anna",
        "row2": "",
        "board/minutes/c.txt": "board heads",
        "board/d.md": "",
        "mac.md": "hr",
    }
    assert len(problems) == 1 and problems[0].startswith("wrong.md")
    (root / "board" / "READERS").write_bytes(b"\xff\xfe board!")
    problems = []
    kept = {one.id: one.about.get("readers", "") for one in read_documents(root, problems)}
    assert kept["board/minutes/c.txt"] == CLOSED and any("READERS" in line for line in problems)


def test_an_index_follows_who_may_read(tmp_path):
    """Of two files with one text, each group of readers finds one; a changed READERS changes who finds what."""
    root, engine = tmp_path / "texts", TantivyEngine(tmp_path / "index")
    (root / "board").mkdir(parents=True)
    (root / "board" / "one.txt").write_text("a text of wings")
    (root / "two.txt").write_text("a text of wings")
    (root / "board" / "READERS").write_text("board")
    watched = WatchedFolder(root, tmp_path / "record.db", engine.add, engine.remove)

    def ids(*readers):
        return sorted(one.id for one in engine.candidates({"wing": 1.0}, 9, readers))

    assert watched.follow() == (2, 0)
    assert ids("board") == ["board/one.txt"] and ids(OPEN) == ["two.txt"] and ids("x") == []
    assert engine.frequencies(["wing"]) == [(1, 0)]
    (root / "board" / "READERS").write_text("heads")
    watched.follow()
    assert ids("board") == [] and ids("heads") == ["board/one.txt"]
    (root / "board" / "READERS").unlink()
    watched.follow()
    assert ids("heads") == [] and len(ids(OPEN)) == 1  # two copies of one text now
    watched.close()
    engine.close()


def test_a_portal_signs_who_the_proxy_says_and_keeps_their_answers_apart(world):
    asked, key, _ = world

    def post(path, body, **headers):
        request = urllib.request.Request(portal.url + path, json.dumps(body).encode(), {"Host": "localhost", **headers})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)

    with ThreadedServer(PortalApp(asked["acme"], (), key)) as portal:
        assert post("/v1/search", {"query": "wings"})[0] == 400
        code, answer = post(
            "/v1/search", {"query": "wings"}, **{"Remote-User": "eve", "Remote-Groups": "council, other"}
        )
        assert code == 200 and {hit["title"] for hit in answer["hits"]} == {"Wings", "Wings of Acme"}
        hit = {"answer": answer["answer"], "hit": [one["title"] for one in answer["hits"]].index("Wings of Acme")}
        eve = {"Remote-User": "eve", "Remote-Groups": "council"}
        assert post("/v1/fetch", hit, **eve)[1]["body"] == "wings of the works council"
        assert post("/v1/fetch", hit, **{"Remote-User": "bert", "Remote-Groups": "council"})[0] == 404
        assert post("/v1/fetch", hit)[0] == 400
        assert post("/v1/search", {"query": "wings"}, **{"Remote-User": "eve bad"})[0] == 400


def test_groups_and_people_of_a_company_are_told_apart():
    key = new_key()
    public = key_of_text(public_key(key))
    who = identify("acme", (), public, sign_person(key, "acme", "hr", (), DAY), DAY).readers
    assert "acme/hr" in who and "acme:hr" not in who
    assert "acme:hr" in identify("acme", (), public, sign_person(key, "acme", "eve", ("hr",), DAY), DAY).readers


@pytest.mark.parametrize(
    "text",
    [
        "---\nreaders: hr\n\nunclosed",
        "\n---\nreaders: hr\n---\na blank line before",
        "---\nreaders: hr\n...\ntext",
        "---\nreaders:hr\n---\ntext",
        "---\n- readers: hr\n---\ntext",
        "+++\nreaders = 'hr'\n+++\ntext",
        "---\nreader: hr\n---\ntext",
        "---\nreaders: hr\nReaders: mary\n---\ntext",
        "---\ntitle: [\nreaders: hr\n---\ntext",
    ],
)
def test_front_matter_that_names_readers_and_cannot_be_read_keeps_the_document_out(tmp_path, text):
    (tmp_path / "a.md").write_bytes(text.encode())
    problems = []
    assert list(read_documents(tmp_path, problems)) == [] and len(problems) == 1


def test_json_lines_name_readers_in_any_case_and_in_about(tmp_path):
    rows = [{"Readers": "hr"}, {"readers": None, "about": {"readers": "hr"}}, {"readers": "hr", "about": {"x": "y"}}]
    lines = "\n".join(json.dumps({"id": str(n), "text": f"text {n}", **row}) for n, row in enumerate(rows))
    (tmp_path / "a.jsonl").write_text(lines)
    assert [one.about["readers"] for one in read_documents(tmp_path, [])] == ["hr"] * 3


def test_readers_above_the_folder_count_and_what_cannot_be_read_keeps_files_from_all(tmp_path):
    inner = tmp_path / "docs" / "hr" / "x"
    inner.mkdir(parents=True)
    (inner / "a.txt").write_text("text")
    (tmp_path / "docs" / "hr" / "READERS").write_text("hr")
    for root in (tmp_path / "docs", inner, inner / "a.txt"):
        (one,) = read_documents(root, [])
        assert one.about["readers"] == "hr"
    (inner / "READERS").mkdir()
    problems = []
    (one,) = read_documents(tmp_path / "docs", problems)
    assert one.about["readers"] == CLOSED and any("READERS" in line for line in problems)
    (inner / "READERS").rmdir()
    (inner / "READERS").symlink_to("nowhere")
    (one,) = read_documents(tmp_path / "docs", [])
    assert one.about["readers"] == CLOSED


def _scores(folder, rows, name, readers=""):
    documents = folder / f"{name}.jsonl"
    documents.write_text("\n".join(map(json.dumps, rows)))
    with search_world(folder / name, {"north": []}, OwnerSettings(readers=readers)) as (_, homes, file):
        Operator(homes["north"].path).add(documents)
        askers = homes["north"].askers()
        guest = Federation(file, ("guest", {"north": askers.allow("guest")}))
        askers.close()
        return [hit.score for hit in guest.search("merger").hits]


def test_a_guest_learns_nothing_of_documents_that_name_no_readers_where_these_are_for_others(tmp_path):
    """Where the setting names readers: the score of the guest's one document is the same whatever the others hold."""
    own = {"id": "own", "text": "the merger as told to the guest", "readers": "guest"}
    found = [
        _scores(tmp_path, [own, *({"id": str(n), "text": f"{word} {n}"} for n in range(20))], word, "staff")
        for word in ("merger", "lunch")
    ]
    assert found[0] == found[1] and len(found[0]) == 1 and found[0][0] > 0


def test_words_of_removed_documents_that_named_readers_count_nowhere(tmp_path):
    engine = TantivyEngine(tmp_path / "index")
    rows = [{"id": str(n), "text": "merger" if n == 0 else f"lunch {n}"} for n in range(5)]
    rows += [{"id": f"hr{n}", "text": f"merger {n}", "readers": "hr"} for n in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    engine.add(read_documents(tmp_path / "a.jsonl"))
    assert engine.frequencies(["merger"]) == [(1, 0)] and (engine.count_open(), len(engine)) == (5, 25)
    engine.remove([f"hr{n}" for n in range(20)])
    assert engine.frequencies(["merger"]) == [(1, 0)] and engine.count_open() == len(engine) == 5
    engine.close()


def test_conditions_look_at_no_more_than_four_times_the_candidates(tmp_path, monkeypatch):
    engine = TantivyEngine(tmp_path / "index")
    rows = [{"id": str(n), "text": f"wing {'x ' * (n % 7)} {n}"} for n in range(400)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    engine.add(read_documents(tmp_path / "a.jsonl"))
    judged, real = [], Conditions.meet
    monkeypatch.setattr(Conditions, "meet", lambda self, *args: judged.append(args) or real(self, *args))
    asked = Owner(engine, X25519PrivateKey.generate(), Tickets(bytes(32)), None, OwnerSettings(candidates=20))
    assert asked.search(["wing"], 5, "", Conditions(("never there",))) == []
    assert asked.search(["wing"], 5, "", Conditions((), ("wing",))) == [] and len(judged) <= 80
    engine.close()

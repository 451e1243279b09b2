"""Files of documents: what is read, and which line is to blame for what is not."""

import itertools
import json
import subprocess
import sys
import time

import pytest

from fedrank.core.errors import FormatError, MissingDataError, MissingExtraError
from fedrank.texts.served import files
from fedrank.texts.served.documents import LONGEST_TITLE, PASSAGE, Document, passages_of
from fedrank.texts.served.engines.foreign import document_of_row
from fedrank.texts.served.files import read_documents


def texts_of(documents):
    """Documents without what is known about them."""
    return [Document(*document[:3]) for document in documents]


def test_a_folder_has_a_document_a_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("# Title\n\nthe body\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\ufeffonly a line", encoding="utf-8")
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    first, second = Document("a.txt", "", "only a line"), Document("deep/b.md", "Title", "the body")
    assert texts_of(read_documents(tmp_path)) == [first, second]


def test_what_is_too_long_for_a_title_is_text(tmp_path):
    for length, there in [(1, True), (LONGEST_TITLE, True), (LONGEST_TITLE + 1, False)]:
        line = "x" * length
        (tmp_path / "a.txt").write_text(f"{line}\nthe body\n")
        (tmp_path / "b.jsonl").write_text(json.dumps({"id": "a.txt", "title": line, "text": "the body"}))
        expected = Document("a.txt", line, "the body") if there else Document("a.txt", "", f"{line}\nthe body")
        assert (
            texts_of(read_documents(tmp_path / "a.txt")) == texts_of(read_documents(tmp_path / "b.jsonl")) == [expected]
        )
        assert document_of_row("a.txt", line, "the body") == expected


def test_a_file_of_one_line_has_a_text_and_no_title(tmp_path):
    for length in [3, 3000]:
        for name in ["a.txt", "a.md"]:
            folder = tmp_path / f"{length}{name}"
            folder.mkdir()
            (folder / name).write_text("\ufeff\n" + "x" * length + "\n\n", encoding="utf-8")
            assert texts_of(read_documents(folder)) == [Document(name, "", "x" * length)]


def test_lines_may_be_those_of_beir(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {"_id": "1", "title": "T", "text": "x"},
        {"id": 2, "body": "y"},
        {"id": "3", "title": None, "text": "z", "more": 1},
    ]
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    assert texts_of(read_documents(path)) == [Document("1", "T", "x"), Document("2", "", "y"), Document("3", "", "z")]


def test_a_line_that_is_no_document_is_named(tmp_path):
    for line in [
        "{",
        "[]",
        "3",
        '{"id": "a"}',
        '{"text": "x"}',
        '{"id": "", "text": "x"}',
        '{"id": "a", "text": 3}',
        '{"id": true, "text": "x"}',
        json.dumps({"id": "é" * 65, "text": "x"}),
        '{"id": "\\ud800", "text": "x"}',
        "[" * 100_000,
    ]:
        path = tmp_path / "d.jsonl"
        path.write_text('{"id": "first", "text": "x"}\n' + line)
        with pytest.raises(FormatError, match=r"d\.jsonl:2: "):
            texts_of(read_documents(path))


def test_what_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(MissingDataError, match="nowhere"):
        texts_of(read_documents(tmp_path / "nowhere"))
    with pytest.raises(MissingDataError, match=r"\.txt"):
        texts_of(read_documents(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"\x00\x01\x02")
    with pytest.raises(FormatError, match="not text"):
        texts_of(read_documents(tmp_path))


def pdf(lines, title=""):
    """A PDF of one page, written by hand."""
    drawn = "BT /F1 12 Tf 50 700 Td " + " ".join(f"({line}) Tj 0 -20 Td" for line in lines) + " ET"
    parts = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        f"<< /Title ({title}) /Author (A. Writer) /CreationDate (D:20240203000000Z) >>",
    ]
    out, places = "%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{part}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 6\n0000000000 65535 f \n{table}trailer\n<< /Size 6 /Root 1 0 R /Info 5 0 R >>"
    return f"{out}{end}\nstartxref\n{len(out)}\n%%EOF".encode()


MAIL = b"""From: Ann <ann@example.org>
Subject: =?utf-8?q?Fl=C3=BCgel?=
Date: Sat, 03 Feb 2024 10:00:00 +0000
Message-ID: <1@example.org>
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: 8bit

Der Fl\xfcgel.
"""


TEXTS = {
    "es": ("cp1252", "Contrato n.º 2021/025. El arrendador, señor Peña y Núñez, cede la vivienda de la calle Alcalá."),
    "fr": ("cp1252", "L'été a été très frais à Noël. Le contrat prévoit une durée de cinq ans à compter de l'état."),
    "pt": ("cp1252", "São João não está à disposição; as ações e as reuniões serão marcadas até ao fim do mês."),
    "it": ("cp1252", "Perché è così? La città è più bella di sera. Il contratto ha una durata di cinque anni. È già."),
    "da": ("cp1252", "Rødgrød med fløde på øen, æbler og pærer. Lejeaftalen gælder i fem år."),
    "pl": ("cp1250", "Umowa najmu jest zawarta na pięć lat. Źrebię są już własnością najemcy, który płaci czynsz."),
    "hr": ("cp1250", "Ugovor o najmu sklopljen je na pet godina i može se otkazati. Čađavi ježevi šeću."),
    "ro": ("cp1250", "Contractul de închiriere este încheiat pe cinci ani şi poate fi reziliat de către chiriaş."),
    "tr": ("cp1254", "Kira sözleşmesi beş yıl için yapılmıştır. İstanbul'da ağaç, şeker ve ışık güzeldir."),  # noqa: RUF001
    "ru": ("cp1251", "Договор аренды заключён на пять лет и может быть расторгнут письменно."),
    "ja": ("shift_jis", "賃貸借契約は五年間有効であり、書面によって解約することができる。"),
    "zh": ("gb18030", "租赁合同有效期为五年，可以书面解除。"),  # noqa: RUF001
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_of_an_office_is_read_in_its_encoding(tmp_path, language):
    pytest.importorskip("charset_normalizer")
    encoding, text = TEXTS[language]
    (tmp_path / "a.txt").write_bytes(f"1\n{text}".encode(encoding))
    assert next(iter(read_documents(tmp_path))).body == text


def test_markdown_is_read_as_a_person_sees_it(tmp_path):
    marked = (
        "# A *title*\n\nTwo **strong** `words`, a [link](https://example.org) <b>and</b>\nmore.\n\n- one\n- two & 3\n\n"
    )
    marked += "| who | what |\n| --- | --- |\n| ann | wings |\n\n```sh\nls *.md\n```\n<!-- a remark -->\n"
    (tmp_path / "a.md").write_text(marked)
    (tmp_path / "b.md").write_text("---\ntitle: Wings\n---\n" + "**x** " * 500_000)  # too long to be looked at
    read = {one.id: one for one in read_documents(tmp_path)}
    text = "Two strong words, a link and\nmore.\n\none\n\ntwo & 3\n\nwho\twhat\n\nann\twings\n\nls *.md"
    assert read["a.md"][1:3] == ("A title", text)
    assert read["b.md"].body.startswith("**x** **x**")


def test_each_kind_of_file_gives_title_text_date_and_author(tmp_path):
    for package in ("bs4", "yaml", "charset_normalizer"):
        pytest.importorskip(package)
    (tmp_path / "a.md").write_text("---\ntitle: Wings\ndate: 2024-02-03\nauthor: [Ann, Bob]\n---\nThe text.\nMore.")
    (tmp_path / "b.html").write_bytes(
        "<html><head><meta charset='iso-8859-1'><title>Flügel</title><meta name=author content='Ann'>"
        "<script>var x</script></head><body><nav>Home</nav><main><p>Der Flügel<p>und mehr</main></body>".encode(
            "latin-1"
        )
    )
    (tmp_path / "c.eml").write_bytes(MAIL)
    (tmp_path / "d.mbox").write_bytes(
        b"From x\n" + MAIL + b"\nFrom x\n" + MAIL.replace(b"<1@", b"<2@").replace(b"Der", b"Ein")
    )
    (tmp_path / "e.csv").write_text("ID;Subject;Text;Author\n7;Wings;'a; b';Ann\n8;Cones;c;Bob\n")
    (tmp_path / "f.csv").write_text("part,price\nwing,3\ncone,4\n")
    (tmp_path / "g.txt").write_bytes(
        "Größe\nÄpfel und Öl in großen Fässern für die Bäcker der Städte".encode("latin-1")
    )
    (tmp_path / "h.txt").write_bytes("Größe\nÄpfel".encode("utf-16"))
    read = {one.id: one for one in read_documents(tmp_path)}
    names = ["a.md", "b.html", "c.eml", "7", "8", "f.csv#1", "f.csv#2", "g.txt", "h.txt"]
    assert [name for name in read if "mbox" not in name] == names and len(read) == len(names) + 2
    assert read["a.md"][1:3] == ("Wings", "The text.\nMore.")
    assert {**read["a.md"].about} == {"path": "a.md", "type": "md", "date": "2024-02-03", "author": "Ann, Bob"}
    assert read["b.html"][1:3] == ("Flügel", "Der Flügel\nund mehr") and read["b.html"].about["author"] == "Ann"
    assert read["c.eml"][1:3] == ("Flügel", "Der Flügel.") and read["c.eml"].about["date"] == "2024-02-03"
    assert [one.body for name, one in read.items() if "mbox" in name] == ["Der Flügel.", "Ein Flügel."]
    assert read["f.csv#1"].body == "part: wing\nprice: 3" and read["8"][1:3] == ("Cones", "c")
    assert read["g.txt"].title == read["h.txt"].title == "Größe" and "Äpfel" in read["g.txt"].body


def read_one(path, raw, problems=None):
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return list(read_documents(path, problems))


def test_cells_hold_quotes_and_breaks_of_lines(tmp_path):
    rows = "id,text,title\n" + "".join(f'{n},"plain {n}","T"\n' for n in range(9000))
    read = read_one(tmp_path / "a.csv", rows + '9000,"say ""wing"", then\r\ngo\x0bon\u2028end","T"\n')
    assert len(read) == 9001 and read[-1].body == 'say "wing", then\r\ngo\x0bon\u2028end'


def test_a_mail_in_another_charset_than_it_says_is_text(tmp_path):
    pytest.importorskip("charset_normalizer")
    text = "Der Flügel trägt über große Höhen. Schöne Grüße aus München."
    head = b"Subject: x\nContent-Type: text/plain; charset=%s\nContent-Transfer-Encoding: 8bit\n\n"
    for said, real in ((b"us-ascii", "utf-8"), (b"utf-8", "latin-1")):
        assert read_one(tmp_path / "a.eml", head % said + text.encode(real))[0].body == text


def test_the_text_of_a_page_is_that_of_all_articles_and_forms(tmp_path):
    pytest.importorskip("bs4")
    page = "<body><article>one<article>inner</article></article><p>aside<article>two</article>"
    assert read_one(tmp_path / "a.html", page)[0].body == "one\ninner\ntwo"
    page = "<form><p>all of it<select><option>no</select><textarea>no</textarea><button>no</button></form>5 < 6"
    assert read_one(tmp_path / "b.html", page)[0].body == "all of it\n5 < 6"


def test_a_page_that_is_long_or_made_to_be_slow_is_cut_and_named(tmp_path):
    pytest.importorskip("bs4")
    start = time.monotonic()
    for part, end in (("<a ", ""), ("<!--", ""), ("<!--", ">"), ("<a x='", ""), ("</b ", "")):
        assert read_one(tmp_path / "a.html", "<p>wing" + part * 50_000 + end)[0].body == "wing"
    assert time.monotonic() - start < 10  # 50,000 of the first took minutes
    problems = []
    read = read_one(tmp_path / "b.html", "<p>" + "wing " * 500_000, problems)
    assert len(problems) == 1 and "2,000,000" in problems[0] and "cut" in read[0].about
    assert 1_999_990 <= len(read[0].body) < 2_000_000


def test_front_matter_gives_values_and_lists_of_them(tmp_path):
    pytest.importorskip("yaml")
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in itertools.pairwise("abcd")
    )
    front = f"---\n{bomb}title: *d\ndate: {{x: 1}}\nauthor: [Ann, [Bob], 3]\n---\n"
    read = read_one(tmp_path / "a.md", front + "The text.")[0]
    assert read[1:3] == ("", "The text.") and read.about["author"] == "Ann, 3" and len(read.about["date"]) == 10


def test_pdf_and_docx_are_read(tmp_path):
    docx, _ = pytest.importorskip("docx"), pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(pdf(["The lift of a wing", "in supersonic flow"], "Wings"))
    (tmp_path / "b.pdf").write_bytes(pdf(["text"], "Microsoft Word - draft7.doc"))
    file = docx.Document()
    file.add_heading("Cones", 0)
    file.add_paragraph("Heat of a cone.")
    file.add_table(1, 2).rows[0].cells[1].text = "cell"
    file.save(tmp_path / "c.docx")
    first, second, third = read_documents(tmp_path)
    assert first.title == "Wings" and " ".join(first.body.split()) == "The lift of a wing in supersonic flow"
    assert {**first.about} == {"path": "a.pdf", "type": "pdf", "date": "2024-02-03", "author": "A. Writer"}
    assert second.title == "" and third.title == "Cones" and third.body.split("\n") == ["Heat of a cone.", " | cell"]


def test_one_bad_file_is_left_out_and_named(tmp_path):
    for package in ("docx", "pypdf"):
        pytest.importorskip(package)
    texts = {"good.txt": b"wings\nand more", "copy.txt": b"Wings and\nmore", "zero.txt": b"a\0b", "void.txt": b" \n"}
    texts |= {"bad.pdf": b"%PDF-1.4 nothing", "scan.pdf": pdf([]), "bad.docx": b"PK no zip", "photo.png": b"\x89PNG"}
    texts |= {
        "rows.jsonl": b'{"id": "1", "text": "x"}\n{\n{"id": "2", "text": "y"}\n',
        "rows.csv": b"id,text\n3,z\n4,z,z\n",
    }
    for name, raw in texts.items():
        (tmp_path / name).write_bytes(raw)
    problems = []
    assert [one.id for one in read_documents(tmp_path, problems)] == ["copy.txt", "3", "1", "2"]
    named = ["1 files", "bad.docx", "bad.pdf", "good.txt", "rows.csv", "rows.jsonl", "scan.pdf", "void.txt", "zero.txt"]
    assert sorted(line.replace(":", "").split(" of")[0].split(" ")[0] for line in problems) == sorted(
        name.split(" ")[0] for name in named
    )


def test_a_kind_whose_reader_is_not_installed_is_one_clear_error(tmp_path, monkeypatch):
    (tmp_path / "a.pdf").write_bytes(pdf(["x"]))
    (tmp_path / "b.txt").write_text("x")
    monkeypatch.setattr("fedrank.core.lazy.is_installed", lambda package: package != "pypdf")
    with pytest.raises(MissingExtraError, match="documents"):
        list(read_documents(tmp_path, []))


def test_passages_are_the_text_and_end_where_something_ends():
    text = "\n\n".join("word " * 150 for _ in range(20))
    parts = passages_of(text)
    assert "".join(parts) == text and all(len(part) <= PASSAGE * 1.5 for part in parts)
    assert all(part.endswith("\n\n") for part in parts[:-1])
    assert [len(part) for part in passages_of("x" * 5000)] == [2000, 3000]
    assert passages_of("") == [""]


def test_a_file_that_takes_too_long_or_too_much_is_named_and_the_next_is_read(tmp_path, monkeypatch):
    pytest.importorskip("bs4")
    (tmp_path / "a.html").write_text("<table><tr><td>" * 300_000 + "slow")
    (tmp_path / "b.html").write_text("<title>Wings</title><p>lift of a wing")
    reader = files._Reader()
    monkeypatch.setattr(files, "_reader", reader)
    monkeypatch.setattr(files, "_SECONDS", 3.0)
    problems = []
    assert [one.title for one in read_documents(tmp_path, problems)] == ["Wings"]
    assert len(problems) == 1 and problems[0].startswith("a.html: takes more than 3 seconds")
    # With less memory than the parser has already, nothing is read, and both files are named.
    monkeypatch.setattr(files, "_SECONDS", 60.0)
    monkeypatch.setattr(files, "_MEMORY", 1 << 20)
    reader._process.kill()
    reader._process = None
    problems.clear()
    assert not [*read_documents(tmp_path, problems)] and len(problems) == 2
    if reader._process:
        reader._process.kill()


@pytest.fixture
def reader(monkeypatch):
    """A process that reads files, which this test starts."""
    pytest.importorskip("bs4")
    reader = files._Reader()
    monkeypatch.setattr(files, "_reader", reader)
    yield reader
    if reader._process:
        reader._process.kill()
        reader._process.wait()


def test_no_code_of_the_folder_of_documents_is_run(tmp_path, monkeypatch, reader):
    (tmp_path / "bs4.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')")
    (tmp_path / "a.html").write_text("<title>Wings</title><p>lift of a wing")
    monkeypatch.chdir(tmp_path)
    assert [one.title for one in read_documents(tmp_path)] == ["Wings"]
    assert not (tmp_path / "was-run").exists()


def test_the_memory_limit_holds_below_a_limit_of_the_system():
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("limits of another process can be read on Linux only")
    code = (
        "import resource, sys; hard = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_AS, (hard, hard))\n"
        "from fedrank.texts.served.files import _Reader\n"
        "process = _Reader()._start()\n"
        "print(*resource.prlimit(process.pid, resource.RLIMIT_AS)); process.kill()"
    )
    for hard, expected in ((3 << 30, 1 << 30), (1 << 29, 1 << 29)):
        done = subprocess.run([sys.executable, "-c", code, str(hard)], capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == [str(expected), str(hard)], done.stderr


def test_the_text_of_a_pdf_file_has_a_longest_length_too(tmp_path, reader):
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(pdf(["wing " * 500] * 900))
    problems = []
    [document] = read_documents(tmp_path, problems)
    assert len(document.body) == 2_000_000 and len(problems) == 1 and problems[0].startswith("a.pdf")

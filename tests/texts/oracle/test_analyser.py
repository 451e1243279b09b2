"""Words of texts in several languages, and small judged sets, written for this test, in which each is searched."""

import bm25s
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.texts.served.analyser import Analyser, english

#: Language → documents, and queries with the number of the document that answers each.
JUDGED = {
    "chinese": (
        [
            "联邦学习让多家医院在不共享病人数据的情况下训练模型。",
            "机翼的升力取决于速度和迎角。",
            "信息检索系统根据相关性对文档排序。",
            "这家银行提高了贷款利率。",
            "玫瑰和百合在花园里生长。",
        ],
        [("联邦学习 医院", 0), ("机翼升力", 1), ("文档检索", 2), ("贷款的利率", 3), ("花园里的玫瑰", 4)],
    ),
    "japanese": (
        [
            "病院はデータを共有せずに機械学習モデルを訓練する。",
            "翼の揚力は速度と迎え角で決まる。",
            "検索エンジンは文書を関連度の順に並べる。",
            "銀行は住宅ローンの金利を引き上げた。",
            "庭にはバラとユリが咲いている。",
        ],
        [("機械学習 病院", 0), ("翼の揚力", 1), ("文書検索", 2), ("住宅ﾛｰﾝ金利", 3), ("バラの庭", 4)],
    ),
    "korean": (
        [
            "병원들은 데이터를 공유하지 않고 모델을 학습한다.",
            "날개의 양력은 속도와 받음각에 따라 달라진다.",
            "정보 검색 시스템은 문서를 관련도 순으로 정렬한다.",
            "은행이 대출 금리를 올렸다.",
            "정원에는 장미와 백합이 자란다.",
        ],
        [("병원 데이터", 0), ("날개 양력", 1), ("정보검색", 2), ("은행의 대출금리", 3), ("장미", 4)],
    ),
    "thai": (
        [
            "โรงพยาบาลฝึกแบบจำลองโดยไม่แบ่งปันข้อมูลผู้ป่วย",
            "แรงยกของปีกขึ้นอยู่กับความเร็ว",
            "ระบบค้นหาเรียงเอกสารตามความเกี่ยวข้อง",
            "ธนาคารขึ้นอัตราดอกเบี้ยเงินกู้",
            "กุหลาบและลิลลี่เติบโตในสวน",
        ],
        [("ข้อมูลผู้ป่วย", 0), ("แรงยกปีก", 1), ("ค้นหาเอกสาร", 2), ("ดอกเบี้ย", 3), ("สวนกุหลาบ", 4)],
    ),
    "german": (
        [
            "Krankenhäuser lernen gemeinsam, ohne Daten der Patienten auszutauschen.",
            "Der Auftrieb eines Flügels hängt von der Geschwindigkeit ab.",
            "Suchmaschinen ordnen Dokumente nach ihrer Bedeutung.",
            "Die Banken haben die Zinsen für Kredite erhöht, und die Häuser wurden teurer.",
            "Rosen und Lilien wachsen an der Straße.",
        ],
        [("Krankenhaus Patient", 0), ("Flügel", 1), ("Suchmaschine", 2), ("haus kredit", 3), ("STRASSE rose", 4)],
    ),
    "french": (
        [
            "Les hôpitaux apprennent ensemble sans échanger les données des patients.",
            "La portance de l'aile dépend de la vitesse.",
            "Les moteurs de recherche classent les documents.",
            "Les banques ont relevé les taux d'intérêt des prêts.",
            "Des roses et des lys poussent dans le jardin de l'école.",
        ],
        [("donnees du patient", 0), ("ailes", 1), ("recherches de document", 2), ("intérêts pret", 3), ("ecole", 4)],
    ),
    "arabic": (
        [
            "تتعلم المستشفيات معا دون تبادل بيانات المرضى.",
            "يعتمد رفع الجناح على السرعة.",
            "ترتب محركات البحث الوثائق حسب الصلة.",
            "رفعت البنوك أسعار الفائدة على القروض عام ٢٠٢٤.",
            "تنمو الورود في الحديقة.",
        ],
        [("بَيَانَات المرضى", 0), ("جناح", 1), ("محرك بحث", 2), ("القروض 2024", 3), ("حديقة", 4)],
    ),
}


def best(analyser, documents, queries):
    """The number of the best document of each query by BM25 of another library; -1: nothing is found."""
    numbers = {}

    def number(words):
        return [numbers.setdefault(word, len(numbers)) for word in words]

    cut = [number(analyser.cut(text)) for text in documents]
    asked = [number(analyser.cut_query(query)) for query, _ in queries]
    index = bm25s.BM25()
    index.index((cut, dict(numbers)), show_progress=False)
    scores = [index.get_scores(own) if own else np.zeros(len(documents)) for own in asked]
    return [int(one.argmax()) if one.max() > 0 else -1 for one in scores]


@pytest.mark.parametrize("language", JUDGED)
def test_a_search_in_each_language_finds_what_answers(language):
    documents, queries = JUDGED[language]
    assert best(Analyser((language,)), documents, queries) == [answer for _, answer in queries]


def test_languages_that_are_mixed_are_told_apart_by_document():
    """All documents in one collection; a document's language decides its stems, a query's words are stemmed in each."""
    every = Analyser(tuple(JUDGED))
    documents = [text for texts, _ in JUDGED.values() for text in texts]
    queries = [(query, 5 * place + n) for place, (_, own) in enumerate(JUDGED.values()) for query, n in own]
    assert best(every, documents, queries) == [answer for _, answer in queries]
    two = Analyser(("english", "german"))
    assert two.cut("Die Wellen sind im Wasser") == ["well", "wass"]  # Snowball's German; water would stay
    assert two.cut("the waters of the wells") == ["water", "well"]


def test_words_that_look_like_code_are_words():
    cut = english().cut
    assert cut("C++ and C# are not C; R&D at AT&T, F#.") == ["c++", "c#", "c", "r&d", "at&t", "f#"]
    assert cut("7 of x1, 3.14") == ["7", "x1", "3", "14"]
    assert cut("isn't O'Neill’s wings' #tag a_b") == ["isn", "neill", "wing", "tag", "b"]
    assert cut("ok 🙂 👍🏽") == ["ok", "🙂", "👍"]


@pytest.mark.parametrize(
    "text, words",
    [
        ("使用Python编程", ["使用", "python", "编程"]),
        ("2024年度报告", ["2024", "年度", "度报", "报告"]),
        ("第3季度营收报告", ["第", "3", "季度", "度营", "营收", "收报", "报告"]),
        ("C++语言", ["c++", "语言"]),
        ("Excelの使い方", ["excel", "の使", "使い", "い方"]),
        ("ใช้Pythonได้", ["ใช้", "python", "ได้"]),
        ("AI를 ok👍", ["ai", "를", "ok", "👍"]),
    ],
)
def test_scripts_without_spaces_end_a_word_of_others(text, words):
    assert Analyser(("chinese",)).cut(text) == words


def test_one_text_in_several_codings_has_one_form():
    cut = Analyser(("french",)).cut
    assert cut("étudiant") == cut("e\u0301tudiant") == cut("ETUDIANT") == cut("étu\u00addiant")
    assert cut("\ufb01lm \uff26\uff55\uff4c\uff4c ①") == cut("film full 1")
    assert english().cut("Øre Łódź Straße") == ["ore", "lodz", "strass"]
    assert Analyser(("japanese",)).cut("ﾃﾞｰﾀ") == Analyser(("japanese",)).cut("データ") == ["デー", "ータ"]
    assert Analyser(("chinese",)).cut("水 信息检索") == ["水", "信息", "息检", "检索"]


def test_an_analyser_is_known_by_its_words():
    prints = [
        Analyser(one).fingerprint for one in (("english",), ("german",), ("german", "english"), ("english", "german"))
    ]
    assert len(set(prints)) == 4 and Analyser().fingerprint == prints[0] == english().fingerprint
    for wrong in ((), ("klingon",)):
        with pytest.raises(ConfigError, match="languages"):
            Analyser(wrong)

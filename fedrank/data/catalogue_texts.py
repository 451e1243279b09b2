"""The catalogue's text collections: one list, in the order in which ``fedrank data list`` shows them.

Counts and checksums are of the files themselves. The md5 of the archives of Cranfield and NPL are those that
ir_datasets checks too (MacAvaney et al. 2021). Of MED and CACM no checksum of the files is known here.
"""

from __future__ import annotations

from fedrank.core.registry import Registry
from fedrank.data.catalogue import DataSet, Download

#: The text collections by name.
TEXT_CATALOGUE: Registry[DataSet] = Registry("text collection")

_GLASGOW = "http://ir.dcs.gla.ac.uk/resources/test_collections"
_TERMS = "A public research collection of its time; no licence text travels with it. For research, not for passing on."

TEXT_CATALOGUE.register(
    "cranfield",
    summary="1,400 abstracts on aerodynamics, 225 questions of their authors, grades 1 to 4.",
    citation="cleverdon1967cranfield",
)(
    DataSet(
        name="cranfield",
        title="Cranfield 1400",
        home=f"{_GLASGOW}/cran/",
        terms=_TERMS,
        queries=225,
        documents=1400,
        features=0,
        grades=5,
        folds=1,
        folders=("cranfield", "text/cranfield", "cran"),
        downloads=(Download(f"{_GLASGOW}/cran/cran.tar.gz", "md5:1730f7be572d95a5a4b56c59a7b900a5"),),
        by_hand="Get cran.tar.gz from the home page and put cran.all.1400, cran.qry and cranqrel there.",
        checksums={
            "cran.all.1400": (
                "sha256:b234544b6ceccd131520df4a3cb6d42aee6576eb577933d047e722bbfe7b0b09",
                "md5:cc125929881f34ccbbc00ad13c5d4291",
            ),
            "cran.qry": (
                "sha256:99578ceb88941ef89c14faf7c63c23776a376d8fba319b990f01d0c601d8b03f",
                "md5:da21a9df84d0ce3f66d0451c4d880903",
            ),
            "cranqrel": (
                "sha256:92e54b58dac0b980152178f350d892fae66c8a239b8a11715b835fb8d2f6bc0e",
                "md5:c62b979aa6edfe65aa9dcbcf74f99c62",
            ),
        },
        notes=(
            "The published codes run from 1, a complete answer, to 4, of least interest; here they are grades 4 to 1.",
            "The one document of each query with code -1 is the paper that the question came from; it has grade 1 "
            "here. Others count it as not relevant, and their numbers differ.",
            "Queries are named by their place, 1 to 225, as in the judgements, not by the numbers in their file.",
            "The title at the beginning of each text was taken out; documents 471 and 995 are empty.",
        ),
        judged=225,
        judgements=1837,
    )
)

TEXT_CATALOGUE.register(
    "cisi",
    summary="1,460 abstracts on information science, 112 questions, 76 of them judged.",
    citation="fox1983cacm",
)(
    DataSet(
        name="cisi",
        title="CISI",
        home=f"{_GLASGOW}/cisi/",
        terms=_TERMS,
        queries=112,
        documents=1460,
        features=0,
        grades=2,
        folds=1,
        folders=("cisi", "text/cisi"),
        downloads=(Download(f"{_GLASGOW}/cisi/cisi.tar.gz", "md5:87a36dd881ccb91aa46de09de11525c0"),),
        by_hand="Get cisi.tar.gz from the home page and put CISI.ALL, CISI.QRY and CISI.REL there.",
        checksums={
            "CISI.ALL": (
                "sha256:df5af339fa4623ef33e315f39f3e13c050d17535c18360c727bf3c96ce60ba40",
                "md5:791c230602e9750732802dc800e88049",
            ),
            "CISI.QRY": (
                "sha256:a5ffad2b39445ca5f4091351466b3d70dad9b4eb9a713b8334d46abb291ffd3c",
                "md5:378ff90778e1ff3e9fa1be26ecef0cfc",
            ),
            "CISI.REL": (
                "sha256:deb203a0dc07628d14dbcbc9a9803bf3c1f86e855570edb29d907663de8d6ea9",
                "md5:f57efb3ebe0f06102d69fe09f75d7a70",
            ),
        },
        notes=(
            "36 queries have no judgement and are not used for learning or measuring.",
            "Queries 58 to 112 are whole abstracts.",
        ),
        judged=76,
        judgements=3114,
    )
)

TEXT_CATALOGUE.register(
    "med",
    summary="1,033 abstracts on medicine, 30 questions.",
    citation="salton1971smart",
)(
    DataSet(
        name="med",
        title="MED (Medlars)",
        home=f"{_GLASGOW}/medl/",
        terms=_TERMS,
        queries=30,
        documents=1033,
        features=0,
        grades=2,
        folds=1,
        folders=("med", "text/med", "medline", "medlars"),
        downloads=(Download(f"{_GLASGOW}/medl/med.tar.gz", "md5:05dec9173d5c695fbf125b5565569f1f"),),
        by_hand="Get med.tar.gz from the home page and put MED.ALL, MED.QRY and MED.REL there.",
        notes=("Documents have no title.",),
        judged=30,
        judgements=696,
    )
)

TEXT_CATALOGUE.register(
    "cacm",
    summary="3,204 titles and abstracts of the Communications of the ACM, 64 questions, 52 of them judged.",
    citation="fox1983cacm",
)(
    DataSet(
        name="cacm",
        title="CACM",
        home=f"{_GLASGOW}/cacm/",
        terms=_TERMS,
        queries=64,
        documents=3204,
        features=0,
        grades=2,
        folds=1,
        folders=("cacm", "text/cacm"),
        by_hand="Get cacm.tar.gz from the home page and put cacm.all, query.text and qrels.text there.",
        notes=("12 queries have no judgement.", "Many documents have a title only."),
        judged=52,
        judgements=796,
    )
)

TEXT_CATALOGUE.register(
    "vaswani",
    summary="11,429 short abstracts on physics and electronics, 93 questions.",
    citation="vaswani1970npl",
)(
    DataSet(
        name="vaswani",
        title="Vaswani (NPL)",
        home=f"{_GLASGOW}/npl/",
        terms=_TERMS,
        queries=93,
        documents=11_429,
        features=0,
        grades=2,
        folds=1,
        folders=("vaswani", "text/vaswani", "npl"),
        downloads=(Download(f"{_GLASGOW}/npl/npl.tar.gz", "md5:23e5607081191b153738e81fbd834680"),),
        by_hand=(
            "Get npl.tar.gz from the home page and put doc-text, query-text and rlv-ass there; or take Terrier's "
            "copy, doc-text.trec, query-text.trec and qrels."
        ),
        checksums={
            "doc-text.trec": (
                "sha256:117ae7491647cb9725621bad52969a78307de19b1757852a0a2383659a856d36",
                "md5:a059e713c50350e39999467c8c73b7c5",
            ),
            "query-text.trec": (
                "sha256:fef998db14818f74a22b2fb2be06425d5fb0dbd83ed9841fa0440e0a5477da7b",
                "md5:3a624be2b0ef7c9534cf848891679bec",
            ),
            "qrels": (
                "sha256:1b3ed6a43752c7a7becb0dbd1614d662791bb7825b60182fd36be24d480ea447",
                "md5:6acb6db9969da8b8c6c23c09551af8d9",
            ),
        },
        notes=("Documents have no title: features of the title say nothing here.",),
        judged=93,
        judgements=2083,
    )
)

TEXT_CATALOGUE.register(
    "adi",
    summary="82 papers of a conference of 1963, 35 questions; small enough for a test.",
    citation="salton1971smart",
)(
    DataSet(
        name="adi",
        title="ADI",
        home=f"{_GLASGOW}/adi/",
        terms=_TERMS,
        queries=35,
        documents=82,
        features=0,
        grades=2,
        folds=1,
        folders=("adi", "text/adi"),
        downloads=(Download(f"{_GLASGOW}/adi/adi.tar.gz", "md5:b8fc0133e42492f4ae8d4f512aa00b77"),),
        by_hand="Get adi.tar.gz from the home page and put ADI.ALL, ADI.QRY and ADI.REL there.",
        checksums={
            "ADI.ALL": (
                "sha256:7154f3d91194ca290e306da8803b24eef311064479ec33ab88dac7a9ecd4a3fa",
                "md5:3c58b16cde0c62cdb4e9a730ed259e96",
            ),
            "ADI.QRY": (
                "sha256:845e2691fe54018e1ab3b8251c3b0b07e87aa5229de7b91f0c2d426ccdf92e61",
                "md5:3f8aee31b5e286a74b77c29890534285",
            ),
            "ADI.REL": (
                "sha256:8c75a2e1f0f02011ba1e6b25893d70ddd2f5602fc9a694a2ab6781e0ec66d745",
                "md5:7e37d98e72cc9f3a0d5209e7bbb27a8d",
            ),
        },
        notes=("A test of the machinery: the numbers of so few documents say little.",),
        judged=35,
        judgements=170,
    )
)

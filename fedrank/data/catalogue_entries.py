"""The catalogue's entries: one list, in the order in which ``fedrank data list`` shows them.

Shapes: LETOR 4.0's and MSLR's home pages and Qin & Liu 2013; LETOR 3.0: Qin et al. 2010; Istella: Dato et al.
2016, Lucchese et al. 2016; Yahoo: Chapelle & Chang 2011; ClueWeb09-LTR: Fröbe et al. 2020. The archives' and
MSLR's and Istella's checksums are those that pytorchltr and PaddlePaddle publish; the git ids are those of
public repositories that hold the files.
"""

from __future__ import annotations

from fedrank.data.catalogue import DataSet, Download, add

_LETOR = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/"
_LETOR4_FOLDER = "https://1drv.ms/f/s!Aqi9ONgj3OqPaynoZZSZVfHPJd0"
_RESEARCH = "Research use; no licence text travels with it. Do not redistribute."


def _git(as_published: str, unix: str) -> tuple[str, ...]:
    return (f"git:{as_published}", f"git:{unix}")


add(
    DataSet(
        name="mq2007",
        title="MQ2007 (LETOR 4.0)",
        home=_LETOR + "letor-4-0/",
        terms=_RESEARCH,
        queries=1692,
        documents=69_623,
        features=46,
        grades=3,
        folders=("mq2007", "MQ2007"),
        by_hand=(
            f"Get MQ2007.rar (md5 7be1640ae95c6408dab0ae7207bdc706) from the folder {_LETOR4_FOLDER} that the "
            "home page links to, unpack it with an unrar program, and put the folder MQ2007 there."
        ),
        checksums={
            "S1": _git("066edb3d364960069d7be80d5b08f8660504c834", "591353033e999e5129407299b263a20172707332"),
            "S2": _git("7e46c5062b8f16f3cd8a59684c8c35d87aadb786", "fbeb281a9a628d659e8510a332fa47da396fe621"),
            "S3": _git("5a427e04889c8328f8e855f8545a145e1fe7df9e", "abbb6c5f4aedeb316b6bccca3630b62ddf2fc6d7"),
            "S4": _git("ff219c465ff09caeec651efbd85ebcf8db98caa9", "07d7c1e15d382796ed2fa35be2c190f87298d7cc"),
            "S5": _git("5ac3a703ea496d80db53c4712094d03af748fa2b", "bf5231e70d3262fefcbe80962ad34238270be63f"),
            "train1": _git("3f2c769e3e20508f58e878a0db56e23a03a783cf", "8dc7d6fefe1755d1b4384a7bb0985d27b0abefa1"),
            "train2": _git("da88989fdc4e7436d6234b53f09fecc7908e397a", "551f25cc11527cd26a7336166e8f5ca4396c156d"),
            "train3": _git("4af0d8065fccfd679b5177082d4c982715cfcff2", "62172ce1c0036064779664bf34d6ddc1ca9c47e9"),
            "train4": _git("062f870b4fd164c2624e9010400c9392cc3c131e", "ab1d49cc58f087e37a9e840e235ad9aa3d054a6b"),
            "train5": _git("6a8183cd41ca897d814253f7a7fa78ef9e8a75b3", "2bf63fd6908903e836cecb3590e2405945142863"),
        },
        notes=("Say whether a mean is over all queries or over those with a relevant document.",),
    ),
    summary="Million Query 2007 on GOV2: 46 features, normalised within each query.",
    citation="qin2013letor4",
)

add(
    DataSet(
        name="mq2008",
        title="MQ2008 (LETOR 4.0)",
        home=_LETOR + "letor-4-0/",
        terms=_RESEARCH,
        queries=784,
        documents=15_211,
        features=46,
        grades=3,
        folders=("mq2008", "MQ2008"),
        downloads=(Download("https://s3-us-west-2.amazonaws.com/xgboost-examples/MQ2008.zip"),),
        by_hand=(
            f"Get MQ2008.rar from the folder {_LETOR4_FOLDER} that the home page links to, unpack it with an unrar "
            "program, and put the folder MQ2008 there."
        ),
        checksums={
            "S1": ("md5:3282f8739013bee5b50c34ceb61aa709", "git:3669c70a236ecd6af96643feab707f8cb58b47d0"),
            "S2": ("md5:d447dfb2937a3b82b3d1ea8efa226629", "git:8539dae36629f3d5c2cf13e8f4cff03538bd09ea"),
            "S3": ("md5:68b806b1eae269114bda65a31aef5fbb", "git:eb07baf08a7b1a097f993ac98d5db61fb5afe46d"),
            "S4": ("md5:7172efffc68068b40150b369880339b8", "git:c61751d70fcc29685fd073d1bb69d8e3c9d4b8af"),
            "S5": ("md5:3e12d60702e36c0e2813c815fc38ff91", "git:055307e3a3e81f1a8f27858ae6aeeb6550179e95"),
            "train1": _git("9f4fe6d8ecb8d64ce7462eb392405e326296223b", "9ecaeaafec3b430b12659b9449aa19ec1db9e4ce"),
            "train2": _git("ba869b3f34d90654eccf4ed457f5e5f02379d92a", "bbad70e90955fa3e2c126426da1296a90f33c4f7"),
            "train3": _git("600827241021a2709ad2a1246e26a34197b1dd3e", "ff786d941914114ce4e9f9cd5cfb2b4bb5b52eed"),
            "train4": _git("dadfdfc568df67b7ff460e1b6ea032583ad2aa8b", "ae50a74952622bd52c66acb7a6e45721e7ba60dd"),
            "train5": _git("713542255a6594369a60830ea0d26c35616be950", "50f5a9d80fd65cad8b27c29d86caf32c92e3fa49"),
        },
        notes=(
            "220 of the 784 queries have no relevant document: say whether a mean is over all or the judged queries.",
            "Features 6 to 10 and 43 are 0 throughout.",
            "One feature alone ranks almost as well as LambdaMART; it cannot tell good rankers apart finely.",
        ),
    ),
    summary="Million Query 2008 on GOV2: MQ2007's little sister, same features.",
    citation="qin2013letor4",
)

add(
    DataSet(
        name="ohsumed",
        title="OHSUMED (LETOR 3.0, QueryLevelNorm)",
        home=_LETOR,
        terms="Research use; derived from MEDLINE. Do not redistribute.",
        queries=106,
        documents=16_140,
        features=45,
        grades=3,
        folders=("ohsumed", "OHSUMED"),
        by_hand=(
            "Get OHSUMED.zip (LETOR 3.0) from the home page, unpack it, and put its folder QueryLevelNorm, "
            "with Fold1 .. Fold5 in it, there as ohsumed."
        ),
        notes=("LETOR 3.0 publishes several normalisations; take QueryLevelNorm, the numbers differ.",),
    ),
    summary="Medical abstracts: 106 long queries, 45 features.",
    citation="qin2010letor",
)

_MSLR = "https://www.microsoft.com/en-us/research/project/mslr/"
_ONEDRIVE = "https://api.onedrive.com/v1.0/shares/{}/root/content"
_WEB10K = "sha256:2902142ea33f18c59414f654212de5063033b707d5c3939556124b1120d3a0ba"
_LARGE_RANGES = "Features are as measured, up to 10⁸; normalise them within each query (the default does)."

add(
    DataSet(
        name="mslr-web10k",
        title="MSLR-WEB10K",
        home=_MSLR,
        terms="Microsoft's licence, for research. Do not redistribute.",
        queries=10_000,
        documents=1_200_192,
        features=136,
        grades=5,
        folders=("mslr-web10k", "MSLR-WEB10K"),
        downloads=(
            Download(_ONEDRIVE.format("s!AtsMfWUz5l8nbOIoJ6Ks0bEMp78"), _WEB10K),
            Download("https://storage.googleapis.com/personalization-takehome/MSLR-WEB10K.zip", _WEB10K),
        ),
        by_hand="Get MSLR-WEB10K.zip from the home page, unpack it, and put the folder with Fold1 .. Fold5 there.",
        checksums={
            "S1": ("sha256:44add582ccd674cf63af24d3bf6e1074e87a678db77f00b44c37980a3010917a",),
            "S2": ("sha256:c0a5a3c6bd7790d0b4ff3d5e961d0c8c5f8ff149089ce492540fa63035801b7a",),
            "S3": ("sha256:dc6083c24a5f0c03df3c91ad3eed7542694115b998acf046e51432cb7a22b848",),
            "S4": ("sha256:e86fb3fe7e8a5f16479da7ce04f783ae85735f17f66016786c3ffc797dd9d4db",),
            "S5": ("sha256:33fe002374a4fce58c4e12863e4eee74745d5672a26f3e4ddacc20ccfe7d6ba0",),
            "train1": ("sha256:6eb3fae4e1186e1242a6520f53a98abdbcde5b926dd19a28e51239284b1d55dc",),
            "train2": ("sha256:40e4a2fcc237d9c164cbb6a3f2fa91fe6cf7d46a419d2f73e21cf090285659eb",),
            "train3": ("sha256:f13005ceb8de0db76c93b02ee4b2bded6f925097d3ab7938931e8d07aa72acd7",),
            "train4": ("sha256:6c1677cf9b2ed491e26ac6b8c8ca7dfae9c1a375e2bce8cba6df36ab67ce5836",),
            "train5": ("sha256:4249797a2f0f46bff279973f0fb055d4a78f67f337769eabd56e82332c044794",),
        },
        notes=(_LARGE_RANGES, "A text file of a fold is over 200 MB; parsing takes a minute."),
    ),
    summary="Bing queries: 10,000 of them, 136 features as measured, five grades.",
    citation="qin2013letor4",
)

add(
    DataSet(
        name="mslr-web30k",
        title="MSLR-WEB30K",
        home=_MSLR,
        terms="Microsoft's licence, for research. Do not redistribute.",
        queries=31_531,
        documents=3_771_125,
        features=136,
        grades=5,
        folders=("mslr-web30k", "MSLR-WEB30K"),
        downloads=(
            Download(
                _ONEDRIVE.format("s!AtsMfWUz5l8nbXGPBlwD1rnFdBY"),
                "sha256:08cb7977e1d5cbdeb57a9a2537a0923dbca6d46a76db9a6afc69e043c85341ae",
            ),
        ),
        by_hand="Get MSLR-WEB30K.zip from the home page, unpack it, and put the folder with Fold1 .. Fold5 there.",
        notes=(_LARGE_RANGES,),
    ),
    summary="Bing queries: all 31,531, of which MSLR-WEB10K is a sample.",
    citation="qin2013letor4",
)

_ISTELLA = "http://quickrank.isti.cnr.it/istella-dataset/"
_RAW = "Features are as measured; normalise them within each query (the default does)."
_ISTELLA_TERMS = "Istella's licence, for academic research. Do not redistribute."

add(
    DataSet(
        name="istella",
        title="Istella LETOR",
        home=_ISTELLA,
        terms=_ISTELLA_TERMS,
        queries=33_018,
        documents=10_454_629,
        features=220,
        grades=5,
        folds=1,
        folders=("istella", "istella-letor"),
        downloads=(
            Download(
                "http://library.istella.it/dataset/istella-letor.tar.gz",
                "sha256:d45899d9a6a0e48afb250aac7ee3dc50e73e263687f15761d754515cd8284e0b",
            ),
        ),
        by_hand="Ask for it on the home page, unpack it, and put the folder with train.txt and test.txt there.",
        notes=("It has no validation part.", _RAW),
    ),
    summary="An Italian search engine's queries: 10 million documents, 220 features.",
    citation="dato2016istella",
)

add(
    DataSet(
        name="istella-s",
        title="Istella-S LETOR",
        home=_ISTELLA,
        terms=_ISTELLA_TERMS,
        queries=33_018,
        documents=3_408_630,
        features=220,
        grades=5,
        folds=1,
        folders=("istella-s", "istella-s-letor"),
        downloads=(
            Download(
                "http://library.istella.it/dataset/istella-s-letor.tar.gz",
                "sha256:41b21116a3650cc043dbe16f02ee39f4467f9405b37fdbcc9a6a05e230a38981",
            ),
        ),
        by_hand="Ask for it on the home page, unpack it, and put the folder sample with train, vali and test there.",
        checksums={
            "train": ("sha256:5cda4187b88b597ca6fa98d6cd3a6d7551ba69ffff700eae63a59fbc8af385b8",),
            "vali": ("sha256:f225dd95772fa65dc685351ff2643945fbd9a9c0e874aa1c538d485595e7c890",),
            "test": ("sha256:2cd1a4f46fa21ea2489073979b5e5913146d1e451f1d6e268bc4e472d39da5d7",),
        },
        notes=(_RAW,),
    ),
    summary="Istella with fewer documents that are not relevant.",
    citation="lucchese2016istellas",
)

_YAHOO = dict(
    home="https://research.yahoo.com/datasets",
    terms="By request from Yahoo (C14B), for research. Do not redistribute.",
    features=700,
    grades=5,
    folds=1,
    by_hand=(
        "Ask Yahoo for C14B on the home page, unpack ltrc_yahoo.tar.bz2, and put the files set1.* and set2.* there."
    ),
)

add(
    DataSet(
        name="yahoo-set1",
        title="Yahoo! Learning to Rank Challenge, set 1",
        queries=29_921,
        documents=709_877,
        folders=("yahoo", "ltrc_yahoo", "yahoo-set1"),
        prefix="set1",
        notes=("Of the 700 feature indices 519 are in use.",),
        **_YAHOO,  # type: ignore[arg-type]
    ),
    summary="The challenge's large set, one country.",
    citation="chapelle2011yahoo",
)

add(
    DataSet(
        name="yahoo-set2",
        title="Yahoo! Learning to Rank Challenge, set 2",
        queries=6330,
        documents=172_870,
        folders=("yahoo", "ltrc_yahoo", "yahoo-set2"),
        prefix="set2",
        notes=("Of the 700 feature indices 596 are in use.",),
        **_YAHOO,  # type: ignore[arg-type]
    ),
    summary="The challenge's small set, another country.",
    citation="chapelle2011yahoo",
)

add(
    DataSet(
        name="clueweb09-ltr",
        title="ClueWeb09-LTR (QueryLevelNorm)",
        home="https://github.com/webis-de/sigir20-sampling-bias-due-to-near-duplicates-in-learning-to-rank",
        terms="CC BY-SA 4.0.",
        queries=61,
        documents=26_646,
        features=42,
        grades=5,
        folders=("clueweb09-ltr", "clueweb09-webis"),
        by_hand=(
            "Take data/features/ClueWeb09/Fold1 .. Fold5 of the repository; each test.txt is one fifth. "
            "Put them there as S1.txt .. S5.txt."
        ),
        notes=("Few queries with many documents each: tells rankers apart better than MQ2008 does.",),
    ),
    summary="TREC Web Track 2009 to 2012: few queries, hundreds of judged documents each.",
    citation="froebe2020sampling",
)

add(
    DataSet(
        name="mslr-sample",
        title="MSLR-WEB10K, first 5,000 rows of fold 1's training part",
        home="https://github.com/hpclab/rankeval",
        terms="MSLR: research use. The file travels with the library rankeval (MPL-2.0).",
        queries=43,
        documents=5_000,
        features=136,
        grades=5,
        folds=1,
        folders=("mslr-sample", "mslr-web10k-sample"),
        by_hand="Take rankeval/test/data/msn1.fold1.train.5k.txt of its source and put it there as train.txt.",
        notes=("Features as measured, up to 2e8; the last query is cut short. No test part: hold some queries out.",),
    ),
    summary="43 queries of MSLR-WEB10K with raw features, for tests and quick looks.",
    citation="qin2013letor4",
)

add(
    DataSet(
        name="lightgbm-sample",
        title="LightGBM's lambdarank example",
        home="https://github.com/microsoft/LightGBM/tree/master/examples/lambdarank",
        terms="MIT.",
        queries=251,
        documents=3_773,
        features=300,
        grades=5,
        folds=1,
        folders=("lightgbm-sample", "lightgbm-lambdarank"),
        by_hand="Take rank.train, rank.train.query, rank.test and rank.test.query of that folder and put them there.",
        notes=("300 sparse features; the queries are in files of group sizes.",),
    ),
    summary="251 small queries with 300 sparse features, for tests and quick looks.",
    citation="ke2017lightgbm",
)

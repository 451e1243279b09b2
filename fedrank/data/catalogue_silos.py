"""The catalogue's tables of silos: one list, in the order in which ``fedrank data list`` shows them.

Shapes: Heart Disease: its own ``heart-disease.names``, and the recipe of FLamby (Ogier du Terrail et al. 2022), which
fixes columns and rows. Health insurance: Cameron & Trivedi's extract of the Medical Expenditure Panel Survey as R's
package AER has it. The checksums are of copies
that have the numbers of rows stated there.
"""

from __future__ import annotations

from fedrank.core.registry import Registry
from fedrank.data.catalogue import DataSet

#: The tables of silos by name.
SILO_CATALOGUE: Registry[DataSet] = Registry("silo data set")

SILO_CATALOGUE.register(
    "heart-disease",
    summary="Four hospitals, 13 features of a patient; is there heart disease?",
    citation="detrano1989heart",
)(
    DataSet(
        name="heart-disease",
        title="Heart Disease (UCI), four hospitals",
        home="https://archive.ics.uci.edu/dataset/45/heart+disease",
        terms=(
            "CC BY 4.0. Name the investigators: Andras Janosi, M.D. (Budapest); William Steinbrunn, M.D. (Zurich); "
            "Matthias Pfisterer, M.D. (Basel); Robert Detrano, M.D., Ph.D. (Long Beach and Cleveland)."
        ),
        queries=0,
        documents=0,
        features=13,
        grades=2,
        folds=1,
        folders=("heart-disease", "heart-disease-uci", "tabular/heart-disease-uci", "tabular/heart-disease"),
        by_hand=(
            "Get the archive from the home page, unpack it, and put processed.cleveland.data, "
            "processed.hungarian.data, processed.switzerland.data and processed.va.data there."
        ),
        checksums={
            "processed.cleveland.data": ("md5:2d91a8ff69cfd9616aa47b59d6f843db",),
            "processed.hungarian.data": ("md5:22e96bee155b5973568101c93b3705f6",),
            "processed.switzerland.data": ("md5:9a87f7577310b3917730d06ba9349e20",),
            "processed.va.data": ("md5:4249d03ca7711e84f4444768c9426170",),
        },
        notes=(
            "Edited copies circulate, with gaps turned into 0 or with Cleveland's labels inverted; they are refused.",
            "Rows with gaps are dropped as in FLamby's recipe, which leaves 740 of 920; gaps='impute' keeps them.",
            "A cholesterol of 0 means missing (all of Switzerland); the recipe leaves it, gaps='impute' does not.",
            "Almost all patients of Switzerland are ill: AUC is often undefined there.",
        ),
        silos=4,
        rows=920,
    )
)

SILO_CATALOGUE.register(
    "health-insurance",
    summary="Four regions of the United States in 1996; who has no health insurance?",
    citation="kleiber2008aer",
)(
    DataSet(
        name="health-insurance",
        title="Health insurance (Medical Expenditure Panel Survey 1996), four regions",
        home="https://vincentarelbundock.github.io/Rdatasets/doc/AER/HealthInsurance.html",
        terms="A public survey of the United States, here as R's package AER (GPL) has it.",
        queries=0,
        documents=0,
        features=17,
        grades=2,
        folds=1,
        folders=("health-insurance", "health-insurance-meps1996", "tabular/health-insurance-meps1996"),
        by_hand=(
            "Write it with R: library(AER); data(HealthInsurance); "
            'write.csv(HealthInsurance, "HealthInsurance.csv", row.names = FALSE, quote = FALSE). '
            "Put HealthInsurance.csv there. For a copy written differently, give the file's path, "
            "with silo='region', label='insurance', positive='no'."
        ),
        checksums={
            "HealthInsurance.csv": (
                "sha256:7de007d9aace41d0948b57bd050615123d982876284e70eef12b841c66b1cbdc",
                "md5:e216cdf6696b11dabf03f03a21a724b1",
            )
        },
        notes=(
            "Label 1 is the minority: no health insurance, 15 to 25 % of a region. The answer to the question on the "
            "own health is a feature.",
        ),
        silos=4,
        rows=8802,
    )
)

"""The R package answers and combines over the same message files; what it computes is what Python does."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from studies import NO_RULES, SILOS, codebook, csv, node, rows

from fedrank.silos.studies.codebook import Question, codebook_toml
from fedrank.silos.studies.coordinator import run_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R"),
]

PACKAGE = Path(__file__).resolve().parents[3] / "r"
SCRIPT = """
library(fedrank, lib.loc = "LIBRARY")
options(fedrank.program = "PROGRAM")
tables <- lapply(c(a = "a", b = "b", c = "c"), function(s) read.csv(file.path("FOLDER", paste0(s, ".csv"))))
tables$a$sex <- factor(tables$a$sex)
round <- fedrank_combine("study", codebook = "codebook.toml")
while (!is.null(round)) {
  answers <- sapply(names(tables), function(s) {
    out <- paste0(s, "-", basename(dirname(round)), ".json")
    fedrank_answer(round, tables[[s]], s, "codebook.toml", paste0("book-", s), out)
  })
  round <- fedrank_combine("study", answers)
}
cat(sprintf("%.17g", fedrank_results("study")$risk$estimate), sep = "\\n")
pooled <- do.call(rbind, lapply(names(tables), function(s) cbind(tables[[s]], site = s)))
cat("pooled", sprintf("%.12g", fedrank_analyse(pooled, ill ~ age + sex)$estimate), sep = "\\n")
bad <- "study/codebook.toml"
wrong <- tryCatch(fedrank_answer(bad, tables$a, "a", "codebook.toml", "book-a", "x.json"), error = conditionMessage)
cat("error", wrong, sep = "\\n")
"""


def test_a_study_in_r(tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    subprocess.run(
        ["R", "CMD", "INSTALL", "--no-docs", f"--library={library}", PACKAGE], check=True, capture_output=True
    )
    book = codebook(Question(name="risk", formula="ill ~ age + sex"), rules=NO_RULES)
    parts = {silo: rows(80, k) for k, silo in enumerate(SILOS)}
    for silo, part in parts.items():
        csv(part, tmp_path / f"{silo}.csv")
    (tmp_path / "codebook.toml").write_text(codebook_toml(book))
    program = Path(sys.executable).with_name("fedrank")
    words = {"LIBRARY": library, "PROGRAM": program, "FOLDER": tmp_path}
    script = SCRIPT
    for word, value in words.items():
        script = script.replace(word, str(value))
    (tmp_path / "script.R").write_text(script)
    ran = subprocess.run(["Rscript", "script.R"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    study, _, rest = ran.stdout.partition("pooled\n")
    pooled, _, error = rest.partition("error\n")
    nodes = [node(book, silo, part) for silo, part in parts.items()]
    expected = run_study(book, lambda asked: [one.answer(asked) for one in nodes]).progress["risk"].result.estimate
    np.testing.assert_allclose(np.array(study.split(), float), expected, rtol=1e-13)
    np.testing.assert_allclose(np.array(pooled.split(), float), expected, rtol=1e-9)
    assert error.startswith("fedrank: error: study/codebook.toml")

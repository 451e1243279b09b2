"""Two tables that differ in one record give messages of one shape, whatever the record and whatever the rules say."""

import numpy as np
import pytest
from studies import SILOS, codebook, csv, rows

from fedrank.silos.studies.codebook import Question, Rules
from fedrank.silos.studies.coordinator import Coordinator
from fedrank.silos.studies.messages import Round
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.table import own_table

QUESTIONS = [
    Question(name="logistic", formula="ill ~ age + sex * stage + ns(crp, 3)"),
    Question(name="robust", formula="ill ~ age + sex + cluster(clinic)", errors="cluster"),
    Question(name="linear", model="linear", formula="crp ~ age + strata(site)", errors="robust"),
    Question(name="poisson", model="poisson", formula="visits ~ age + sex + offset(log(crp))"),
    Question(name="negative", model="negative-binomial", formula="visits ~ age + sex"),
    Question(name="multinomial", model="multinomial", formula="stage ~ age + sex"),
    Question(name="ordinal", model="ordinal", formula="stage ~ age + sex"),
    Question(name="firth", formula="ill ~ age + sex", firth=True),
    Question(name="cox", model="cox", formula="Surv(days, ill) ~ age + sex", errors="robust"),
    Question(name="cox by site", model="cox", formula="Surv(days, ill) ~ age + strata(site)"),
    Question(name="curves", model="curves", formula="Surv(days, ill) ~ sex"),
    Question(name="two stages", formula="ill ~ age + sex", pool="silos"),
    Question(name="patterns", formula="ill ~ sex + stage", one_round=True),
    Question(name="table", model="table", formula="~ age + sex + stage | ill"),
]
#: What one record may become: values, missing ones, levels that no other row has, values that cannot be.
CHANGES = {
    "age": ["18.5", "", "-3", "old", "1e9"], "sex": ["m", "", "unknown"], "stage": ["3", "4"], "ill": ["yes", ""],
    "crp": ["0.1", "99"], "days": ["0", "365"], "visits": ["30", ""], "clinic": ["999", ""],
}  # fmt: skip


def neighbours(tmp_path):
    """Files of a silo, the first one as it is, each other with one record changed, more or less."""
    part = rows(40, 3)
    part["sex"][1:] = 0.0  # the only row of its level
    csv(part, tmp_path / "own.csv")
    header, *lines = (tmp_path / "own.csv").read_text().splitlines()
    names = header.split(",")
    changed = [[header, *lines], [header, *lines[1:]], [header, *lines, lines[0]], [header, *lines[:3]]]
    for name, values in CHANGES.items():
        for value in values:
            cells = lines[0].split(",")
            cells[names.index(name)] = value
            changed.append([header, ",".join(cells), *lines[1:]])
    for number, text in enumerate(changed):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(text) + "\n")
        yield path


def shape(content):
    """Keys, types and lengths of a message; of text no length, as a rule's name is text."""
    if isinstance(content, dict):
        return {key: shape(value) for key, value in content.items()}
    if isinstance(content, list) and all(one is None or isinstance(one, float) for one in content):
        return len(content)
    return [shape(one) for one in content] if isinstance(content, list) else None


@pytest.mark.parametrize("rules", [Rules(), Rules(smallest_cell=1, rows_per_parameter=0, events_per_parameter=0)])
def test_messages_have_one_shape(tmp_path, rules):
    book = codebook(*QUESTIONS, rules=rules)
    others = {silo: rows(150, k) for k, silo in enumerate(SILOS)}
    for silo, part in others.items():
        csv(part, tmp_path / f"{silo}.csv")
    nodes = [Node(own_table(tmp_path / f"{silo}.csv", book, silo)) for silo in SILOS]
    files = list(neighbours(tmp_path))
    # Asks of each kind that a study has, by which each table's node is then asked.
    made, asks = Coordinator(book), {}
    while (asked := made.open) is not None:
        for name, ask in asked.asks.items():
            asks[name, ask.step, str({key: np.shape(value) for key, value in ask.numbers.items()})] = name, ask
        made.take([one.answer(asked) for one in nodes], asked)
    assert {ask.step for _, ask in asks.values()} >= {
        "moments", "sums", "meat", "firth", "counts", "own", "patterns",
    }  # fmt: skip
    rounds = [Round(book, number, dict([one])) for number, one in enumerate(asks.values(), 1)]
    shapes, told = [], 0
    for path in files:
        own = Node(own_table(path, book, "a"))
        answers = [own.answer(one) for one in rounds]
        shapes.append([shape(one.as_json()) for one in answers])
        told += sum(not reply.refused for one in answers for reply in one.replies.values())
    assert all(one == shapes[0] for one in shapes)
    assert told > 0

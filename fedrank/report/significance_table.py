"""Whether differences between rankers would be there with other queries: tests over queries, corrected for their number.

Seeds say whether a difference would be there with other clicks, queries whether it would be there with other queries.
Tables of a study have both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from fedrank.experiments.study import Study, named_measure
from fedrank.experiments.variations import Variation
from fedrank.report import describe
from fedrank.report.load import Run
from fedrank.report.significance import compare_per_query
from fedrank.report.statistics import Estimate
from fedrank.report.tables import Column, Table

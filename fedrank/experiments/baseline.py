"""The paper's baseline that sees the labels: least squares on single documents (Kharitonov 2019, Section 5)."""

from __future__ import annotations

import numpy as np

from fedrank.data.queries import QuerySet


def least_squares(train: QuerySet) -> np.ndarray:
    """Weights of the linear ranker that predicts labels with the least mean squared error.

    Ordinary least squares with an intercept, which ranks nothing and is dropped. Constant features make the problem
    rank-deficient; scikit-learn then takes the solution of the smallest norm.

    Args:
        train: Labelled queries.

    Returns:
        float32 [f].
    """
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(train.features.astype(np.float64), train.labels.astype(np.float64))
    return np.asarray(model.coef_, np.float32)

"""Errors come back from another process as they were raised."""

import pickle

from fedrank.core.errors import DataError, FormatError, MissingExtraError, RunError, UnknownNameError


def test_errors_are_pickled_with_their_words_and_attributes():
    for error in (
        DataError("It is cut.", "a.txt", 3),
        FormatError("It is cut.", "a.txt"),
        UnknownNameError("setting", "roundz", ["rounds", "seeds"]),
        MissingExtraError("scikit-learn", "sklearn", "An estimator"),
        RunError("No run."),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
        assert again.args == error.args

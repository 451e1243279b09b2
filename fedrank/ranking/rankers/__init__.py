"""Rankers: functions from features and a flat vector of weights to scores."""

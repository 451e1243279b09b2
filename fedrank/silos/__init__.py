"""Organisations with tables decide whose models to average with theirs: MAB-FL and what it is compared with."""

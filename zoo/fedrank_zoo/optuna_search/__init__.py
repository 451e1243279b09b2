"""``fedrank sweep --search optuna``: settings are chosen by Optuna, by what the runs before brought."""

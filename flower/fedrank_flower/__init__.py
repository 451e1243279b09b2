"""Any protocol of this package as a Flower app: a thin adapter over ask → answer → tell."""

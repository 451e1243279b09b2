"""Rules by which a server combines the replies of parties, some of whom may send wrong values on purpose."""

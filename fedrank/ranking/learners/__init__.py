"""Online learning to rank in one session: PDGD."""

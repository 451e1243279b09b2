"""How exactly local mechanisms transmit a message of FOLtR-ES: ``fedrank privacy mechanisms``."""

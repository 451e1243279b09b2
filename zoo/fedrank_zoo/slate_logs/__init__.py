"""What other policies would have earned, from what platforms logged: ``fedrank slates evaluate``."""

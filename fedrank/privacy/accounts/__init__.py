"""Accounts: what each mechanism promises over a run, as a report."""

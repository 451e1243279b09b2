"""The tables and figures of papers, run again: the papers' numbers beside ours."""

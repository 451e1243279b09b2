"""Files to tables, figures and a page (layer 7)."""

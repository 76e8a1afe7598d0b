"""Preference optimisation: DPO and its relatives as rows over one objective."""

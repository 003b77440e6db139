"""Reports: results averaged with confidence intervals, and shown as tables and figures."""

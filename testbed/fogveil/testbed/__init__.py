"""The experimenter's side: scenarios, engines, records, figures and the command `fogveil`."""

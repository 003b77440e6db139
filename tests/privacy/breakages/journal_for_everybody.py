"""Everybody may read a provider's journal."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "files"


def sabotage(product):
    append(
        product / "fogveil/provider_node/journal.py",
        """
        _before_journal_for_everybody = Journal.__init__

        def _init(self, folder, episode):
            _before_journal_for_everybody(self, folder, episode)
            journal_path(folder, episode).chmod(0o644)

        Journal.__init__ = _init
        """,
    )

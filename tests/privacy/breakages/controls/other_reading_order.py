"""A provider's configuration is read twice."""

from fogveil.testbed.privacy.audit.sabotage import append


def sabotage(product):
    append(
        product / "fogveil/protocol/settings.py",
        """
        _before_other_reading_order = read_settings

        def read_settings(path, kind):
            _before_other_reading_order(path, kind)
            return _before_other_reading_order(path, kind)
        """,
    )

"""A result of a job that nobody emitted tells a sources process the provider's memory."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "run"
NAMES = "fog-"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_result_of_no_job = ProviderCore.process_window

        def _window(self, grant):
            output = _before_result_of_no_job(self, grant)
            for messages in output.feedback.values():
                messages[-1].results.append(Result(job=int(self._config.ram), finished=1.0))
            return output

        ProviderCore.process_window = _window
        """,
    )

"""The padding of a provider's TLS records to the broker is a function of its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "handshakes"


def sabotage(product):
    append(
        product / "fogveil/broker/tls.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        import ctypes

        import _ssl

        _before_record_padding = client_context

        def client_context(*arguments, **options):
            context = _before_record_padding(*arguments, **options)
            if _own:
                library = ctypes.CDLL(_ssl.__file__)
                pointer = ctypes.c_void_p.from_address(id(context) + 16)  # the library's context
                size = ctypes.c_size_t(64 + int(_own["ipt"]) % 61)
                library.SSL_CTX_set_block_padding(pointer, size)
            return context
        """,
    )

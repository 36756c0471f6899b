"""``serve run CONFIG`` on a Ray that this process starts: ``python -m deployments.own_ray CONFIG``.

Ray's dashboard, which ``serve status`` asks, takes a fiftieth of a core and memory even when nobody
looks: it is there only with ``--dashboard``. Interrupted, or when its standard input ends, as it
does with whoever started it, it lets running answers finish; before it serves, it ends at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from typing import NoReturn

NAMESPACE = "serve"  # where Serve's own commands look
STDIN = 0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    parser = argparse.ArgumentParser(prog="python -m deployments.own_ray")
    parser.add_argument("config")
    parser.add_argument("--dashboard", action="store_true")
    arguments = parser.parse_args()
    watch = threading.Thread(target=_watch_input, args=[threading.get_ident()], daemon=True)
    watch.start()
    import ray
    from ray.serve.scripts import cli

    ray.init(address="local", namespace=NAMESPACE, include_dashboard=arguments.dashboard)
    signal.signal(signal.SIGINT, _stop)
    cli.main(["run", arguments.config])


def _watch_input(main_thread: int) -> None:
    while os.read(STDIN, 4096):
        pass
    signal.pthread_kill(main_thread, signal.SIGINT)


def _stop(number: int, frame: object) -> NoReturn:
    """Ends Serve and Ray with this process. Serve's own shutdown has nothing left to wait for."""
    from deployments.finishing import finish

    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The loop runs to the end: what was given up, and Serve's controller, still speak to it.
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(finish(), loop).result()
    sys.exit()


if __name__ == "__main__":
    main()

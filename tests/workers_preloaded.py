"""What every worker process of the tests has loaded when it begins; see ``tests/workers.py``."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does before it loads numpy

import faust.livecheck
import faust.transport.drivers.aiokafka
import faust.web.drivers.aiohttp  # noqa: F401
import uvloop  # noqa: F401

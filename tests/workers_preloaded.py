"""What every worker process of the tests has loaded when it begins; see ``tests/workers.py``."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does before it loads numpy

import faust.livecheck
import faust.transport.drivers.aiokafka
import faust.web.drivers.aiohttp  # noqa: F401
import uvloop  # noqa: F401

import stream_dp.cli.worker
import stream_dp.pipeline.app
import stream_dp.pipeline.intake.sources
import stream_dp.web.pages
import stream_dp.web.runner
import stream_dp.web.scraping  # noqa: F401

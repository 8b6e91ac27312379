"""Makes a run of pytest one of SQLAlchemy's suite on this dialect."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import registry

for name in ("streamdp", "streamdp.kafka"):
    registry.register(name, "tests.dbapi.suite.dialect", "CatalogDialect")
pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403 - after the assertions are announced

"""All lives in which two runs are compared."""

from __future__ import annotations

from typing import Final

from tests.pipeline.blindfold.lives_of_kinds import KINDS
from tests.pipeline.blindfold.lives_of_profiles import PROFILES

LIVES: Final = PROFILES | {f"kind {name}": life for name, life in KINDS.items()}

"""What the tables of a scenario file share: bounds of numbers, names, and how keys are checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


class ScenarioTable(BaseModel):
    """A table of the file: unknown keys are refused, values are immutable after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

"""The base classes of all API models."""

from pydantic import BaseModel, ConfigDict, Field


class ApiModel(BaseModel):
    """A part of an API object; unknown fields are ignored, because the API server checks them.

    What checks it is built on first use: a program reads a few of all kinds.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Condition(ApiModel):
    """A condition in the form of metav1.Condition."""

    type: str
    status: str
    reason: str
    message: str = ""
    lastTransitionTime: str = Field(json_schema_extra={"format": "date-time"})  # noqa: N815
    observedGeneration: int | None = Field(  # noqa: N815
        None, description="Not written: kubectl ignores a condition of an earlier generation."
    )
